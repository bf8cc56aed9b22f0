"""Killed at any moment and resumed, a run ends as if nothing had happened."""

from __future__ import annotations

import io
import json
import os
import signal

import pytest
import torch

from adagc.training import checkpoint, history, loop, snapshots
from adagc.training.runs import Run
from conftest import SPAWN
from scripted import STEPS, Scripted, content, identical, train_scripted


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(moment: str, number: int) -> None:
    """Make this process kill itself at the `number`-th occurrence of a moment."""
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count == number

    def before(owner, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            if due():
                die()
            return original(*args, **kwargs)

        setattr(owner, name, wrapped)

    def after(owner, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            result = original(*args, **kwargs)
            if due():
                die()
            return result

        setattr(owner, name, wrapped)

    if moment == "in step":
        before(Scripted, "after_step")
    elif moment == "after keep":
        after(snapshots.Snapshots, "keep")
    elif moment == "after restore":
        after(snapshots.Snapshots, "restore")
    elif moment == "after best":
        after(snapshots.Snapshots, "note_best")
    elif moment == "before save":
        before(snapshots.Snapshots, "save")
    elif moment == "after save":
        after(snapshots.Snapshots, "save")
    elif moment == "at the end":
        before(loop, "save_weights")
    elif moment == "half a checkpoint":
        original_save = torch.save

        def half(state, target):
            if due():
                whole = io.BytesIO()
                original_save(state, whole)
                target.write(whole.getvalue()[:1000])
                die()
            original_save(state, target)

        checkpoint.torch.save = half
    elif moment == "half a line":
        original_append = history.History.append

        def half_line(self, line):
            if due():
                self.folder.append(history.NAME, json.dumps(line.to_dict())[:40])
                die()
            original_append(self, line)

        history.History.append = half_line
    else:
        raise AssertionError(moment)


def work(folder: str, resume: bool, moment: str | None = None, number: int = 0) -> None:
    torch.set_num_threads(1)
    torch.seed()  # a new process starts with any state: none of it may matter
    if moment is not None:
        arrange(moment, number)
    train_scripted(folder, resume=resume)


def in_a_process(*arguments) -> int | None:
    process = SPAWN.Process(target=work, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("resume") / "whole"
    assert in_a_process(str(folder), False) == 0
    found = content(folder)
    lines = found["history"]
    assert [line["verdict"][0] for line in lines] == list("ckkcrcc")
    assert [line["status"]["stage"][0] for line in lines] == list("wwwwccc")
    assert {
        "network-last.safetensors",
        "teacher-best.safetensors",
        "averaged-last.safetensors",
    } <= set(found["weights"])
    return found


MOMENTS = [
    ("in step", 2),  # before the first checkpoint exists
    ("in step", 2 * STEPS + 2),  # warm-up
    ("in step", 3 * STEPS + 1),  # right after the best epoch was kept
    ("in step", 6 * STEPS + 2),  # calibration
    ("after best", 3),
    ("after keep", 2),  # between keep and save
    ("after restore", 1),  # between restore and save
    ("before save", 5),
    ("after save", 5),
    ("half a checkpoint", 4),  # counts keeps too: the snapshot of epoch 3
    ("half a line", 6),
    ("at the end", 2),
]


@pytest.mark.parametrize(("moment", "number"), MOMENTS)
def test_a_killed_run_ends_as_if_nothing_had_happened(tmp_path, uninterrupted, moment, number):
    folder = tmp_path / "run"
    assert in_a_process(str(folder), False, moment, number) == -signal.SIGKILL
    assert not Run.open(folder).finished
    _ = Run.open(folder).history  # a reader that comes now gets no traceback
    assert in_a_process(str(folder), True) == 0
    assert [path.name for path in folder.rglob(".*")] == []  # nor anything that the kill has left
    identical(content(folder), uninterrupted)


def test_killed_again_and_again(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    assert in_a_process(str(folder), False, "in step", 5) == -signal.SIGKILL
    assert in_a_process(str(folder), True, "after keep", 1) == -signal.SIGKILL
    assert in_a_process(str(folder), True, "after restore", 1) == -signal.SIGKILL
    assert in_a_process(str(folder), True, "in step", STEPS + 1) == -signal.SIGKILL
    assert in_a_process(str(folder), True) == 0
    identical(content(folder), uninterrupted)

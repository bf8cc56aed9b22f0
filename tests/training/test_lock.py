"""One process writes a run; another one is told which."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adagc.bench.jobs import plan
from adagc.bench.work import perform
from adagc.errors import BusyError, UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.report import write_report
from adagc.training.config import RunConfig
from adagc.training.experiment import evaluate, train
from adagc.training.lock import HOLDER, LOCK, writing
from adagc.training.runs import Run
from conftest import SPAWN, make_collection
from tiny import write_scenario

CONFIG = RunConfig(scheme="random", epochs=3, batch_size=8, hidden=8, accelerator="cpu")


def start(folder: Path, **more) -> Run:
    return train(CONFIG, AssumeNegative(), folder, collection=make_collection(), **more)


def hold(folder: str, ready) -> None:
    with writing(Path(folder)):
        ready.set()
        time.sleep(600)


@pytest.fixture
def held():
    """A function that lets another process write a run, and returns this process."""
    processes = []

    def begin(folder: Path):
        ready = SPAWN.Event()
        process = SPAWN.Process(target=hold, args=(str(folder), ready))
        process.start()
        processes.append(process)
        assert ready.wait(60)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.join()


def test_a_second_process_is_told_who_writes_and_goes_on_after_a_kill(tmp_path, held):
    run = start(tmp_path / "run")
    before = run.path("history.jsonl").read_bytes()
    other = held(run.folder)
    for refused in (
        lambda: start(run.folder, resume=True),
        lambda: evaluate(run, collection=make_collection()),
    ):
        with pytest.raises(BusyError) as caught:
            refused()
        message = str(caught.value)
        assert message.startswith(f"{run.folder} is being written by process {other.pid} on ")
        assert platform.node() in message
        assert f" since {time.strftime('%Y-')}" in message
        assert message.endswith(": wait until it has ended, or end it")
    assert BusyError.exit_code == 1
    assert run.path("history.jsonl").read_bytes() == before
    other.kill()  # SIGKILL: it cannot tidy up
    other.join()
    assert run.path(HOLDER).exists()
    start(run.folder, resume=True)
    assert not run.path(HOLDER).exists()


def test_training_holds_the_lock_from_the_first_file_to_the_scores(tmp_path, monkeypatch):
    folder, seen = tmp_path / "run", []

    def refused(when: str) -> None:
        with pytest.raises(BusyError, match=f"process {os.getpid()} on "), writing(folder):
            pass
        seen.append(when)

    original = Run.write_json

    def write_json(self, name, value):
        refused(name)
        original(self, name, value)

    monkeypatch.setattr(Run, "write_json", write_json)
    start(folder, on_epoch=lambda line: refused(f"epoch {line.epoch}"))
    assert seen == [
        "environment.json", "inputs.json", "inputs.json", "labels.json", "epoch 1", "epoch 2",
        "epoch 3", "scores.json",
    ]  # fmt: skip
    with writing(folder):  # and no longer
        pass


def test_a_report_may_be_written_meanwhile(tmp_path, held):
    run = start(tmp_path / "run")
    held(run.folder)
    (run.folder / ".report.html.0123abcd.tmp").touch()  # of yet another process
    assert write_report(run, collection=make_collection()).exists()
    assert (run.folder / ".report.html.0123abcd.tmp").exists()


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    run = start(tmp_path / "run")
    leftovers = [".last.ckpt.0123abcd.tmp", "weights/.network-best.safetensors.89abcdef.tmp"]
    for name in leftovers:
        run.path(name).touch()
    start(run.folder, resume=True)
    assert not any(run.exists(name) for name in leftovers)


def test_a_refused_start_leaves_no_lock(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty and not a run"):
        start(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_killed_after_locking_can_be_repeated(tmp_path):
    for name in (LOCK, HOLDER):
        (tmp_path / name).touch()
    assert start(tmp_path).finished


def test_a_holder_that_is_not_known_yet(tmp_path, held):
    held(tmp_path / "run")
    for content in ("", "[]", '{"process": 1}'):
        (tmp_path / "run" / HOLDER).write_text(content)
        with pytest.raises(BusyError, match="written by another process: wait"):
            start(tmp_path / "run")


@pytest.mark.parametrize(
    "error", [NotImplementedError("no flock here"), OSError(errno.ENOLCK, "No locks available")]
)
def test_a_disk_without_locks_is_a_warning(tmp_path, monkeypatch, caplog, error):
    from filelock import FileLock

    def missing(self, *_, **__):
        raise error

    monkeypatch.setattr(FileLock, "acquire", missing)
    assert start(tmp_path / "run").finished
    assert "on a disk without locks: start no second process" in caplog.text


def test_a_bench_leaves_a_run_alone_that_somebody_continues(tmp_path, held):
    (job,) = plan(write_scenario(tmp_path / "tiny"), ["AN"], tmp_path / "out", [0])
    other = held(Path(job.folder))
    with pytest.raises(BusyError, match=f"process {other.pid}"):
        perform(job)
    assert not job.failure.exists()
    other.kill()
    other.join()
    perform(job)
    assert job.status == "finished"


def test_two_commands_that_resume_one_run(tmp_path):
    """The second one is refused, and the first one writes each epoch once."""
    words = [
        "--data", "synthetic", "--scenes", "60", "--size", "16", "--scheme", "random",
        "--backbone", "test_resnet", "--absent", "skip", "--epochs", "40", "--report", "false",
        "--method", "AN", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    command = [sys.executable, "-m", "adagc", "train", *words]
    first = subprocess.Popen([*command, "--resume"], stderr=subprocess.PIPE, text=True)
    try:
        history = tmp_path / "run" / "history.jsonl"
        until = time.monotonic() + 300
        while not (history.exists() and history.stat().st_size):
            assert first.poll() is None, first.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)  # so that it is still at work when the second one looks
        second = subprocess.run(
            [*command, "--resume"], capture_output=True, text=True, check=False, timeout=300
        )
        first.send_signal(signal.SIGCONT)
        _, error = first.communicate(timeout=300)
    finally:
        first.kill()
        first.wait()
    assert second.returncode == 1, second.stderr
    last = second.stderr.splitlines()[-1]
    assert last.startswith(
        f"adagc train: {tmp_path / 'run'} is being written by process {first.pid} "
    )
    assert first.returncode == 0, error
    assert [line.epoch for line in Run.open(tmp_path / "run").history] == list(range(1, 41))

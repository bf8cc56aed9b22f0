"""A disk that fills up while a run is trained: one line, nothing half-written, and it resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from adagc.errors import NoSpaceError
from adagc.training.runs import Run
from full_disk import FullDisk, small_disk
from scripted import content, identical, train_scripted

WORDS = [
    "--data", "synthetic", "--scenes", "60", "--size", "16", "--scheme", "random",
    "--backbone", "test_resnet", "--batch_size", "16", "--average", "0.9", "--absent", "skip",
    "--epochs", "3", "--method", "AdaGC",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict:
    return content(train_scripted(tmp_path_factory.mktemp("full") / "whole").folder)


@pytest.mark.parametrize(
    ("file", "number"),
    [
        ("writer.json", 1),
        ("environment.json", 1),
        ("inputs.json", 1),
        ("config.yaml", 1),
        ("labels.csv", 1),
        ("split.csv", 1),
        ("inputs.json", 2),
        ("labels.json", 1),
        ("history.jsonl", 1),  # as a run begins
        ("history.jsonl", 2),  # the line of the first epoch
        ("history.jsonl", 5),
        ("network-best.safetensors", 1),
        ("keep.ckpt", 2),
        ("last.ckpt", 1),
        ("last.ckpt", 5),
        ("tensorboard", 3),
        ("averaged-last.safetensors", 1),
        ("model.safetensors", 1),
        ("model.json", 1),
        ("predictions.safetensors", 1),
        ("scores.json", 1),
    ],
)
def test_every_file_of_a_run(tmp_path, monkeypatch, whole, file, number):
    if file == "tensorboard":
        pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    folder = tmp_path / "run"
    disk = FullDisk(monkeypatch, file, number)
    with pytest.raises(NoSpaceError) as caught:
        train_scripted(folder)
    message = str(caught.value)
    assert file in message
    assert "it needs " in message
    assert " is free on its disk; free some space" in message
    assert "\n" not in message
    assert [path.name for path in folder.rglob("*.tmp")] == []
    for path in folder.rglob("*.json*"):  # whatever is there is whole
        for line in (
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        ):
            json.loads(line)
    disk.free()
    train_scripted(folder, resume=True)
    identical(content(folder), whole)


def start(out: Path, *more: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    limited = "" if limit is None else f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit},) * 2);"
    code = f"import resource, sys; {limited} from adagc.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "train", *WORDS, "--out", str(out), *more],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def assert_one_line(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("adagc train: ")
    assert last.endswith("; the same command with --resume continues")
    for words in said:
        assert words in last


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("command") / "whole"
    done = start(out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Report: {out / 'report.html'}"
    return out


def test_a_command_with_a_limit_on_the_size_of_files(tmp_path, finished):
    out, size = tmp_path / "run", (finished / "last.ckpt").stat().st_size
    limited = start(out, limit=size // 2)
    assert_one_line(limited, "last.ckpt cannot be written: it needs", "(ulimit -f); raise the")
    assert list(out.rglob("*.tmp")) == []
    assert start(out, "--resume").returncode == 0
    identical(*(load_file(run / "model.safetensors") for run in (out, finished)))


@pytest.mark.system("mount", "umount")
def test_a_command_on_a_real_disk_of_300_kb(tmp_path, finished):
    with small_disk(tmp_path / "disk", 300) as disk:
        out = disk / "run"
        assert_one_line(start(out), str(out), "it needs", "is free on its disk")
        assert list(disk.rglob("*.tmp")) == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        done = start(out, "--resume")
        assert done.returncode == 0, done.stderr
        identical(*(load_file(run / "model.safetensors") for run in (out, finished)))
        assert Run.open(out).scores is not None

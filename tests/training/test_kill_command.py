"""`adagc train` on images, killed from outside while it works, ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adagc.training.runs import Run

WORDS = [
    "--data", "synthetic", "--scenes", "120", "--size", "16", "--scheme", "random",
    "--backbone", "test_resnet", "--batch_size", "16", "--learning_rate", "0.002",
    "--average", "0.9", "--absent", "skip", "--epochs", "10", "--report", "false",
    "--method", "AdaGC", "--method.force_trigger", "0.5",
]  # fmt: skip


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "adagc", "train", *WORDS, "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(out: Path, *more: str) -> None:
    process = start(out, *more)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()


def kill_after(out: Path, epochs: int, delay: float, *more: str) -> None:
    """SIGKILL once so many epochs are in the history, and a moment later."""
    process = start(out, *more)
    history = out / "history.jsonl"
    until = time.monotonic() + 240
    while not history.exists() or history.read_bytes().count(b"\n") < epochs:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was too quick to be killed"
    process.communicate()


@pytest.mark.parametrize("epochs", [1, 6], ids=["warm-up", "calibration"])
def test_killed_and_resumed_gives_the_same_files(tmp_path_factory, epochs):
    whole = tmp_path_factory.getbasetemp() / "whole"
    if not (whole / "scores.json").exists():
        finish(whole)
    out = tmp_path_factory.mktemp("killed") / "run"
    kill_after(out, epochs, random.Random(epochs).uniform(0, 0.1))
    assert not Run.open(out).finished
    finish(out, "--resume")
    stages = [line.status["stage"] for line in Run.open(out).history]
    assert stages[0] == "warm-up"
    assert stages[-1] == "calibration"
    names = sorted(path.relative_to(whole) for path in whole.rglob("*.safetensors"))
    # Model, predictions, remembered estimates, and weights and held-out predictions of three
    # networks at two epochs.
    assert len(names) == 15
    for name in names:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert (out / "scores.json").read_bytes() == (whole / "scores.json").read_bytes()

"""What people see while they wait: a bar that fits the terminal, lines where there is none."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adagc import progress
from adagc.bench.engines import LocalEngine
from adagc.bench.jobs import plan
from adagc.bench.work import perform
from adagc.cli import main
from adagc.progress import Meter, meter, sent_to, tracked
from tiny import write_scenario

TRAIN = [
    "train", "--data", "synthetic", "--scheme", "random", "--absent", "skip", "--size", "16",
    "--backbone", "test_resnet", "--weights", "none", "--report", "false",
]  # fmt: skip


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """The lines about progress."""
    told: list[str] = []
    monkeypatch.setattr(progress, "_lines", None)  # what it was comes back after the test
    progress.write_lines(told.append)
    return told


# -- a terminal ----------------------------------------------------------------------------------


def in_terminal(folder: Path, columns: int, *words: str) -> str:
    """What a command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "adagc", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait(timeout=60) == 0, written.decode()
    return written.decode()


def frames(written: str) -> list[str]:
    """The successive contents of the lines with a bar, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if "━" in line and " % " in line]


def test_at_80_columns_the_bar_and_the_time_left_stay_and_the_note_is_cut(tmp_path):
    words = [*TRAIN, "--method", "AdaGC", "--scenes", "800", "--batch-size", "8", "--epochs", "2"]
    written = in_terminal(tmp_path, 80, *words, "--out", "run")
    shown = frames(written)
    assert len(shown) > 3
    for frame in shown:
        assert len(frame) <= 80
        assert re.match(r"AdaGC [━╸╺]{16} +\d+ % ", frame), frame
    assert any(re.search(r" % +\d+ (s|min) left +epoch ", frame) for frame in shown)
    # It moves within an epoch, and says the noisy score of the epoch before.
    first = {re.search(r"(\d+) %", frame)[1] for frame in shown if "epoch 1/2" in frame}
    assert len(first) > 1
    assert any("epoch 2/2  noisy mAP" in frame for frame in shown)
    assert any(frame.endswith("…") for frame in shown)
    # Nothing is left of it, and the result stands below.
    assert "Run folder: run" in written


def test_a_wider_terminal_shows_more_of_the_note(tmp_path):
    words = [*TRAIN, "--method", "AN", "--scenes", "400", "--batch-size", "8", "--epochs", "2"]
    shown = frames(in_terminal(tmp_path, 120, *words, "--out", "run"))
    assert all(len(frame) <= 120 for frame in shown)
    assert any(re.search(r"assume_negative \d\.\d{3}$", frame) for frame in shown)


def test_work_inside_other_work_has_a_bar_below_it(monkeypatch):
    from rich.console import Console

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    console = Console(force_terminal=True, width=80, file=Terminal())
    monkeypatch.setattr(progress, "terminal", lambda: console)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with meter("AdaGC", 10, marks=True) as outer:
        outer.update(5)
        with meter("predicting", 4) as inner:
            inner.update(1)
            bars = progress._bars._progress
            assert bars is not None
            assert [task.description for task in bars.tasks] == ["AdaGC", "predicting"]
            assert [task.percentage for task in bars.tasks] == [50, 25]
        assert [task.description for task in bars.tasks] == ["AdaGC"]
    assert progress._bars._progress is None


# -- no terminal ---------------------------------------------------------------------------------


def test_off_a_terminal_training_tells_its_first_and_its_last_epoch(capsys, tmp_path):
    words = [*TRAIN, "--method", "AN", "--scenes", "24", "--batch-size", "8", "--epochs", "4"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("AN: epoch")]
    assert [re.match(r"AN: epoch (\d)/4, noisy mAP \d+\.\d", line)[1] for line in told] == [
        "1",
        "4",
    ]


def test_a_file_that_may_have_colours_has_no_bars(tmp_path):
    words = [*TRAIN, "--method", "AN", "--scenes", "24", "--batch-size", "8", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "adagc", *words, "--out", "run"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "FORCE_COLOR": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "AN: epoch 1/1, noisy mAP" in done.stderr
    assert "━" not in done.stderr


def test_every_epoch_that_takes_half_a_minute_has_its_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    words = [*TRAIN, "--method", "AdaGC", "--scenes", "24", "--batch-size", "8", "--epochs", "3"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "AdaGC: epoch" in line]
    assert len(told) == 3
    for line in told:
        assert re.search(r"noisy mAP student \d+\.\d, teacher \d+\.\d, (warm-up|calibration)", line)


def test_lines_come_at_most_every_half_minute_between_the_first_and_the_last(clock, lines):
    with meter("AN", 100, marks=True) as shown:
        for epoch in range(1, 101):
            clock.now += 7
            shown.update(epoch)
            shown.mark(f"epoch {epoch}/100")
    told = [int(re.search(r"epoch (\d+)", line)[1]) for line in lines]
    assert told == [*range(1, 100, 5), 100]
    assert lines[1] == "AN: epoch 6/100, 11 min left"
    assert lines[-1] == "AN: epoch 100/100"


def test_epochs_of_an_hour_are_not_silent(clock, lines):
    with meter("AN", 1000, marks=True) as shown:
        for step in range(1, 1001):
            clock.now += 3.6
            shown.update(step, note=f"epoch 1/1, step {step}")
        shown.mark("epoch 1/1")
    assert len(lines) == 12
    assert lines[0].startswith("AN: epoch 1/1, step 84, 55 min left")


def test_other_work_tells_what_it_does_after_a_second_and_how_long_it_took(clock, lines):
    for number in tracked(range(90), "decoding images", unit="images"):
        clock.now += 0.5 if number else 0.75
    assert lines == [
        "decoding images: 2 of 90 images, 55 s left",
        "decoding images: 62 of 90 images, 14 s left",
        "decoding images: done in 45 s",
    ]


def test_work_that_says_nothing_is_told_after_a_while(lines, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    for what, total in (("writing the report", 0), ("comparing methods", 2)):
        with meter(what, total):
            for _ in range(200):
                if lines and lines[-1].startswith(what):
                    break
                time.sleep(0.02)
    assert [line.partition(" in ")[0] for line in lines] == [
        "writing the report ...",
        "writing the report: done",
        "comparing methods: 0 %",
        "comparing methods: done",
    ]


def test_quick_work_is_not_told(clock, lines):
    for _ in tracked(range(90), "decoding images"):
        clock.now += 0.01
    assert lines == []


def test_work_inside_other_work_is_told_only_after_half_a_minute(clock, lines):
    with meter("AN", 2, marks=True) as outer:
        outer.update(1)
        outer.mark("epoch 1/2")
        for _ in tracked(range(20), "predicting"):
            clock.now += 2
    assert lines == ["AN: epoch 1/2", "predicting: 75 %, 10 s left", "predicting: done in 40 s"]


def test_the_time_left_follows_a_change_of_speed(clock):
    shown = Meter("AdaGC", 300, unit="", marks=True, nested=False)
    shown.begin_at(0)
    for step in range(1, 101):  # a second each, then three
        clock.now += 1
        shown.update(step)
    assert shown.left == "3 min left"  # 200 s
    for step in range(101, 201):
        clock.now += 3
        shown.update(step)
    assert shown.left == "5 min left"  # 300 s, as the last half of the time says


def test_a_continued_run_does_not_count_what_was_done_before(clock):
    shown = Meter("AN", 1000, unit="", marks=True, nested=False)
    shown.begin_at(900)
    for step in range(901, 911):
        clock.now += 1
        shown.update(step)
    assert shown.left == "90 s left"


# -- every command -------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch):
    """The names of all work that is shown, however quick it is."""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    names: set[str] = set()
    with sent_to(lambda shown: names.add(shown.what)):
        yield names


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["image,label"]
    for number in range(24):
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.png")
        lines.append(f"p{number},{'forest' if number % 2 else 'water'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    truth = ["image,forest,water", *(f"p{number},{number % 2},1" for number in range(24))]
    (tmp_path / "truth.csv").write_text("\n".join(truth) + "\n")
    return folder


def test_looking_at_decoding_and_predicting_images_is_shown(seen, photos, tmp_path, capsys):
    labels = str(tmp_path / "labels.csv")
    assert main(["inspect", str(photos), "--labels", labels]) == 0
    assert seen == {"reading images", "looking for duplicates"}
    words = ["train", str(photos), "--labels", labels, "--method", "AN"]
    words += ["--truth", str(tmp_path / "truth.csv")]
    words += ["--backbone", "test_resnet", "--size", "16", "--epochs", "1"]
    assert main([*words, "--absent", "skip", "--out", str(tmp_path / "run")]) == 0
    assert seen >= {"looking at images", "decoding images", "AN", "predicting"}
    seen.clear()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert seen == {"predicting"}


def test_reading_an_array_is_shown(seen, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(8, 4)))
    assert main(["inspect", str(tmp_path / "rows.npy")]) == 0
    assert seen == {"reading images"}


def test_a_bench_tells_epochs_and_runs_and_keeps_to_the_threads_that_are_asked(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_scenario(tmp_path / "tiny")
    words = ["bench", str(tmp_path / "tiny"), "--out", str(tmp_path / "out"), "--seeds", "0"]
    assert main([*words, "--methods", "AN", "WAN", "--workers", "1"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("runs: ")]
    assert re.match(
        r"runs: 0 of 2, epoch 1/2, tiny · AN · seed 0, noisy mAP network \d+\.\d, averaged", told[0]
    )
    assert told[1].startswith("runs: 1 finished of 2, tiny · AN · seed 0")
    assert told[-1] == "runs: 2 finished of 2, tiny · WAN · seed 0"
    environments = list((tmp_path / "out").rglob("environment.json"))
    assert len(environments) == 2
    assert {json.loads(path.read_text())["threads"] for path in environments} == {1}


def test_workers_share_threads_and_say_how_far_they_are_within_an_epoch(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # torch would take both for one worker
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    events = []
    LocalEngine(2).run([job], events.append)
    environment = json.loads((Path(job.folder) / "environment.json").read_text())
    assert environment["threads"] == 1
    moved = [event for event in events if event.kind == "moved"]
    assert moved
    assert any(event.epoch == 0 and 0 < event.within < 1 for event in moved)


def test_a_search_tells_its_trials(tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna")
    write_scenario(tmp_path / "tiny")
    words = ["tune", str(tmp_path / "tiny"), "--methods", "LL-R", "--trials", "2", "--epochs", "1"]
    assert main([*words, "--out", str(tmp_path / "out"), "--tuned", str(tmp_path / "t")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("LL-R: ")]
    assert re.match(r"LL-R: 0 of 2 trials ended, LL-R final=\S+, seed 0, epoch 1/1, noisy", told[0])
    assert re.match(r"LL-R: 1 of 2 trials ended, .*epoch 1/1", told[-1])
    assert (tmp_path / "t" / "ll-r.yaml").exists()


def test_figures_are_drawn_one_after_the_other(seen, tiny, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    perform(job)
    words = [str(tmp_path / "tiny"), "--runs", str(tmp_path / "out"), "--seeds", "0"]
    assert main(["figures", *words, "--out", str(tmp_path / "figures")]) == 0
    assert "drawing figures" in seen

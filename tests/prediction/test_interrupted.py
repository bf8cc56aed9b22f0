"""What happens to a prediction that is ended, and to one that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from adagc.cli import main
from adagc.errors import DataError, UsageError
from full_disk import FullDisk, small_disk
from planted import write_model, write_scene

SLOW = Path(__file__).with_name("slow_predict.py")


@pytest.fixture
def scene(tmp_path):
    values = np.random.default_rng(0).random((3, 96, 130)).astype(np.float32)
    values[:, 30:60, 20:90] = np.nan
    return write_scene(tmp_path / "scene.tif", values)


def start(pause: float, *words, **environment):
    command = [sys.executable, str(SLOW), str(pause), "predict", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def finish(process) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def until_some_blocks(journal: Path, process) -> None:
    """Wait until at least three blocks are written."""
    from adagc.prediction.journal import _WRITTEN

    mark = np.array([_WRITTEN], dtype="<u4").tobytes()
    for _ in range(1200):
        if journal.exists() and journal.read_bytes().count(mark) >= 3:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no progress within a minute")


@pytest.mark.parametrize(
    ("how", "suffix"),
    [
        (signal.SIGKILL, ".tif"),
        (signal.SIGKILL, ".csv"),
        (signal.SIGINT, ".tif"),
        (signal.SIGTERM, ".csv"),
    ],
)
def test_the_same_command_continues(tmp_path, model, scene, how, suffix):
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    options = ("--stride", "4")
    assert finish(start(0, model, scene, "--out", whole, *options))[0] == 0
    process = start(0.2, model, scene, "--out", out, *options)
    journal = tmp_path / f"out{suffix}.progress"
    until_some_blocks(journal, process)
    process.send_signal(how)
    code, errors = finish(process)
    if how == signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
        last = errors.splitlines()[-1]
        assert last.startswith("adagc predict: ")
        assert last.endswith("; the same command continues")
        assert "Traceback" not in errors
    assert not out.exists()
    assert journal.exists()
    code, errors = finish(start(0, model, scene, "--out", out, *options))
    assert code == 0, errors
    assert "continued: " in errors
    assert out.read_bytes() == whole.read_bytes()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"model", "scene.tif", out.name, whole.name}


def test_a_damaged_block_is_predicted_again(tmp_path, model, scene):
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert finish(start(0, model, scene, "--out", whole))[0] == 0
    process = start(0.2, model, scene, "--out", out)
    journal = tmp_path / "out.csv.progress"
    until_some_blocks(journal, process)
    process.kill()
    finish(process)
    content = bytearray(journal.read_bytes())
    # The first record begins behind the table; a cut or flipped byte must not be believed.
    head = len(b"adagc predict 1\n") + 32
    blocks = next(n for n in range(1, 999) if _fits(content, head, n))
    content[head + 8 * blocks] ^= 255
    journal.write_bytes(content)
    assert finish(start(0, model, scene, "--out", out))[0] == 0
    assert out.read_bytes() == whole.read_bytes()


def _fits(content: bytes, head: int, blocks: int) -> bool:
    """Whether the table of a journal has this many entries, by the checksum of the first one."""
    import zlib

    table = np.frombuffer(bytes(content[head : head + 8]), dtype="<u4")
    start = head + 8 * blocks
    return any(zlib.crc32(content[start : start + 16 * n]) == table[1] for n in range(1, 99))


def test_other_work_is_not_continued(tmp_path, model, scene):
    out = tmp_path / "out.csv"
    process = start(0.2, model, scene, "--out", out)
    until_some_blocks(tmp_path / "out.csv.progress", process)
    process.kill()
    finish(process)
    code, errors = finish(start(0, model, scene, "--out", out, "--stride", "5"))
    assert code == 0
    assert "continued" not in errors
    assert not (tmp_path / "out.csv.progress").exists()


@pytest.mark.parametrize("changed", ["nothing", "model", "scene"])
def test_blocks_of_another_model_or_scene_are_not_used(
    tmp_path, model, scene, monkeypatch, caplog, changed
):
    from adagc import predict
    from adagc.prediction import inputs, work
    from adagc.windows.grid import share

    def small(*given, **options):
        return share(*given, **{**options, "across": False, "most": 3 * 16 * 16})

    monkeypatch.setattr(inputs, "share", small)
    original, calls = work.compute_block, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(work, "compute_block", interrupted)
    out = tmp_path / "out.csv"
    with pytest.raises(KeyboardInterrupt):
        predict(model, scene, out)
    assert (tmp_path / "out.csv.progress").exists()
    if changed == "model":
        write_model(tmp_path / "model", thresholds=(0.1, 0.2, 0.3))
    elif changed == "scene":
        write_scene(scene, np.ones((3, 96, 130), dtype=np.float32))
    with caplog.at_level("INFO", logger="adagc"):
        predict(model, scene, out)
    assert ("continued: 2 of" in caplog.text) == (changed == "nothing")
    whole = predict(model, scene, tmp_path / "whole.csv")
    assert out.read_bytes() == whole.out.read_bytes()


def test_nothing_is_left_of_folders_that_were_made_for_the_output(
    tmp_path, model, scene, monkeypatch
):
    from adagc import predict
    from adagc.prediction import predicting

    def failing(*_arguments, **_options):
        raise DataError("unreadable")

    monkeypatch.setattr(predicting, "recorded", failing)
    with pytest.raises(DataError, match="unreadable"):
        predict(model, scene, tmp_path / "new" / "deep" / "out.csv")
    assert not (tmp_path / "new").exists()


def test_polygons_of_what_has_no_place_are_refused_before_it_is_predicted(
    tmp_path, model, monkeypatch
):
    from adagc import predict
    from adagc.prediction import predicting

    monkeypatch.setattr(predicting, "recorded", lambda *_arguments, **_options: 1 / 0)
    with pytest.raises(UsageError, match="a place on earth"):
        predict(model, np.zeros((2, 3, 8, 8), dtype=np.float32), tmp_path / "rows.geojson")


def test_two_processes_do_not_write_one_output(tmp_path, model, scene):
    out = tmp_path / "out.csv"
    first = start(0.3, model, scene, "--out", out)
    until_some_blocks(tmp_path / "out.csv.progress", first)
    code, errors = finish(start(0, model, scene, "--out", out))
    assert code == 1
    assert "is being written by another process" in errors.splitlines()[-1]
    first.kill()
    finish(first)


@pytest.mark.parametrize("suffix", [".tif", ".csv"])
def test_workers_and_ranks_give_the_same(tmp_path, model, scene, suffix):
    alone, workers, ranks = (tmp_path / f"{name}{suffix}" for name in ("one", "two", "ranks"))
    assert finish(start(0, model, scene, "--out", alone, "--stride", "4"))[0] == 0
    words = (model, scene, "--out", workers, "--stride", "4", "--workers", "2")
    code, errors = finish(start(0, *words))
    assert code == 0, errors
    assert workers.read_bytes() == alone.read_bytes()
    both = [
        start(0, model, scene, "--out", ranks, "--stride", "4", RANK=str(r), WORLD_SIZE="2")
        for r in (1, 0)
    ]
    codes = [finish(process) for process in both]
    assert [code for code, _ in codes] == [0, 0], codes
    assert ranks.read_bytes() == alone.read_bytes()
    assert not list(tmp_path.glob("*.progress*"))


def one_line(capsys, message: str) -> None:
    printed = capsys.readouterr()
    (line,) = [text for text in printed.err.splitlines() if text.startswith("adagc predict: ")]
    assert message in line
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_truncated_scene(tmp_path, model, scene, capsys):
    scene.write_bytes(scene.read_bytes()[: scene.stat().st_size // 2])
    before = sorted(tmp_path.iterdir())
    assert main(["predict", str(model), str(scene), "--out", str(tmp_path / "map.tif")]) == 1
    one_line(capsys, "scene.tif: cannot be read")
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk(tmp_path, model, monkeypatch, capsys, scene):
    FullDisk(monkeypatch)
    before = sorted(tmp_path.iterdir())
    assert main(["predict", str(model), str(scene), "--out", str(tmp_path / "rows.csv")]) == 1
    one_line(capsys, "rows.csv cannot be written: it needs")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.system("mount")
@pytest.mark.parametrize("name", ["map.tif", "rows.csv"])
def test_a_disk_that_is_really_full(tmp_path, model, scene, capsys, name):
    with small_disk(tmp_path / "disk", 64) as disk:
        words = ["predict", str(model), str(scene), "--out", str(disk / name), "--stride", "1"]
        cells = ["--cell", "1"] if name == "map.tif" else []
        assert main([*words, *cells]) == 1
        one_line(capsys, f"{name} cannot be written")
        assert list(disk.iterdir()) == []


@pytest.mark.system("mount")
def test_a_disk_that_is_too_small_for_what_is_predicted(tmp_path, model, scene):
    with small_disk(tmp_path / "disk", 16) as disk:
        code, errors = finish(start(0, model, scene, "--out", disk / "rows.csv", "--stride", "1"))
        assert code == 1
        assert "rows.csv.progress cannot be written: it needs" in errors.splitlines()[-1]
        assert list(disk.iterdir()) == []


def test_no_permission(tmp_path, model, scene, capsys, monkeypatch):
    # Root may write anywhere, so the system's answer is given for it.
    monkeypatch.setattr(os, "access", lambda *_: False)
    words = ["predict", str(model), str(scene), "--out", str(tmp_path / "x" / "map.tif")]
    assert main(words) == 2
    one_line(capsys, "nothing may be written to the folder")
    assert not (tmp_path / "x").exists()


def workers(process) -> list[int]:
    """The processes that predict for another one."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        and "resource_tracker" not in Path(f"/proc/{child}/cmdline").read_text()
    ]


def test_a_worker_that_dies(tmp_path, model, scene):
    process = start(0.5, model, scene, "--out", tmp_path / "o.csv", "--workers", "2",
                    "--stride", "2")  # fmt: skip
    until_some_blocks(tmp_path / "o.csv.progress", process)
    ours = workers(process)
    assert ours
    os.kill(ours[0], signal.SIGKILL)
    code, errors = finish(process)
    assert code == 1
    assert "a worker process was ended from outside" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_workers_end_with_the_parent(tmp_path, model, scene):
    process = start(0.5, model, scene, "--out", tmp_path / "o.csv", "--workers", "2",
                    "--stride", "2")  # fmt: skip
    until_some_blocks(tmp_path / "o.csv.progress", process)
    children = workers(process)
    assert len(children) == 2
    assert all(_running(child) for child in children)
    process.kill()
    finish(process)
    for _ in range(100):
        alive = [child for child in children if _running(child)]
        if not alive:
            return
        time.sleep(0.1)
    raise AssertionError(f"{alive} are still there")


def _running(child: int) -> bool:
    try:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

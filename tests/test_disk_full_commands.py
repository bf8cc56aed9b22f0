"""Every command that writes a file says in one line that the disk is full, and leaves nothing."""

from __future__ import annotations

import numpy as np
import pytest

from adagc import atomic
from adagc.cli import main
from adagc.errors import NoSpaceError
from adagc.labels import LabelTable, write_labels
from adagc.text import write_text
from adagc.training.experiment import evaluate
from adagc.training.runs import Run
from conftest import CLASSES, make_collection
from full_disk import FullDisk
from scripted import train_scripted
from tiny import write_scenario


@pytest.fixture
def files(tmp_path):
    """All files of the test, to see that none is added and none is changed."""

    def listing() -> dict[str, bytes]:
        paths = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in paths}

    return listing


def one_line(capsys, command: str, file: str) -> None:
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert lines[-1].startswith(f"adagc {command}: ")
    assert f"{file} cannot be written: it needs" in lines[-1]
    assert "Traceback" not in printed.err


def test_simulate(tmp_path, monkeypatch, capsys, files):
    truth = make_collection().truth.astype(np.int8)
    names = tuple(f"image_{i}" for i in range(len(truth)))
    write_labels(LabelTable(names, CLASSES, truth), tmp_path / "truth.csv")
    before = files()
    FullDisk(monkeypatch)
    words = ["--truth", str(tmp_path / "truth.csv"), "--out", str(tmp_path / "one.csv")]
    assert main(["simulate", *words]) == 1
    one_line(capsys, "simulate", "one.csv")
    assert files() == before


def test_report_and_evaluate(tmp_path, monkeypatch, capsys, files):
    run = train_scripted(tmp_path / "run")
    before = files()
    disk = FullDisk(monkeypatch)
    assert main(["report", str(run.folder)]) == 1
    one_line(capsys, "report", "report.html")
    for name in ("predictions.safetensors", "scores.json"):
        disk.free()
        disk = FullDisk(monkeypatch, name)
        with pytest.raises(NoSpaceError, match=name):
            evaluate(run, collection=make_collection())
        assert list(run.folder.rglob("*.tmp")) == []
    disk.free()
    evaluate(run, collection=make_collection())
    assert files() == before
    assert Run.open(run.folder).scores is not None


def test_bench_tables(tmp_path, monkeypatch, capsys, files):
    write_scenario(tmp_path / "tiny", bench={"seeds": [0]}, epochs=1)
    words = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "--out", str(tmp_path / "out")]
    assert main([*words, "--workers", "1"]) == 0
    capsys.readouterr()
    before = files()
    for name in ("table.md", "table.csv", "table.tex", "table.json"):
        disk = FullDisk(monkeypatch, name)
        assert main(words) == 1
        one_line(capsys, "bench", name)
        disk.free()
        assert files() == before


def test_embeddings_of_class_names(tmp_path, monkeypatch, files):
    for name in ("names.csv", "names.safetensors"):
        disk = FullDisk(monkeypatch)
        with pytest.raises(NoSpaceError, match=name):
            write_text(tmp_path / name, ("a", "b"), np.zeros((2, 3), np.float32), {})
        disk.free()
    assert files() == {}


@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_figures(tmp_path, monkeypatch, files, suffix):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from adagc.paper import canvas

    made, _ = canvas.figure()
    FullDisk(monkeypatch, f".{suffix}")
    with pytest.raises(NoSpaceError, match=rf"curve\.{suffix} cannot be written: it needs"):
        canvas.save(made, tmp_path / "curve")
    assert files() == {}


def test_a_failure_that_cannot_be_noted_is_still_told(tmp_path, monkeypatch):
    from adagc.bench.failures import note_failure
    from adagc.bench.jobs import plan

    scenario = write_scenario(tmp_path / "tiny")
    (job,) = plan(scenario, ["AN"], tmp_path / "out", [0])
    FullDisk(monkeypatch)
    note_failure(job, RuntimeError("it failed"))
    assert job.status == "missing"
    assert atomic.remove_leftovers(job.failure.parent, but="") is None
    assert list(job.failure.parent.iterdir()) == []

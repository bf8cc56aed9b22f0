"""A run without a folder has everything a run has, and leaves nothing on disk."""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from adagc.errors import AdagcError, UsageError
from adagc.inference import predict
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.report import write_report
from adagc.training.config import RunConfig
from adagc.training.experiment import evaluate, predictions_of, train
from adagc.training.folders import DiskFolder, MemoryFolder
from adagc.training.runs import Run
from adagc.training.scoring import truth_of
from adagc.types import Verdict
from conftest import make_collection

CONFIG = RunConfig(
    scheme="random", epochs=6, batch_size=8, learning_rate=0.02, hidden=8, dropout=0.2,
    average=0.9, accelerator="cpu",
)  # fmt: skip


class Scripted(AdaGC):
    """KEEP after 2, RESTORE after 4."""

    def end_epoch(self, scores, progress):
        given = copy.copy(scores)
        value = (0.1, 0.5, 0.4, 0.3, 0.2, 0.1)[progress.epoch - 1]
        object.__setattr__(given, "mean_average_precision", value)
        return super().end_epoch(given, progress)


def method() -> Scripted:
    return Scripted(patience=2, minimum_warm_up=1, force_trigger=None)


class Watch:
    """Files that this process opens for writing, wherever they are."""

    on = False
    written: ClassVar[list[str]] = []


def _watch(event: str, arguments: tuple) -> None:
    if Watch.on and event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        path = str(arguments[0])
        Watch.written += [] if path.startswith("/dev/") or path.isdigit() else [path]


sys.addaudithook(_watch)


def listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """An empty working directory, home and temporary folder, to see what is written."""
    for name in ("here", "temp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    monkeypatch.delenv("ADAGC_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_nothing_is_written(nowhere, monkeypatch):
    before = listing(nowhere)
    monkeypatch.setattr(Watch, "on", True)
    monkeypatch.setattr(Watch, "written", [])
    run = train(CONFIG, method(), collection=make_collection())
    assert run.finished
    assert listing(nowhere) == before
    assert Watch.written == []
    (nowhere / "here" / "note").write_text("so that the watch is known to work")
    assert Watch.written == [str(nowhere / "here" / "note")]


def test_synthetic_scenes_are_not_written_either(nowhere):
    config = RunConfig(
        data="synthetic", scenes=24, size=16, scheme="random", backbone="mlp", hidden=8,
        weights="none", epochs=1, batch_size=8, absent="skip", accelerator="cpu",
    )  # fmt: skip
    before = listing(nowhere)
    run = train(config, AssumeNegative())
    assert run.scores.images == 24
    assert evaluate(run).to_dict() == run.scores.to_dict()
    assert listing(nowhere) == before


@pytest.fixture
def runs(tmp_path) -> tuple[Run, Run]:
    """The same run in memory and on disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collection = make_collection()
        return (
            train(CONFIG, method(), collection=collection),
            train(CONFIG, method(), tmp_path / "run", collection=collection),
        )


def test_it_says_what_a_run_on_disk_says(runs):
    memory, disk = runs
    for run in runs:
        verdicts = [line.verdict for line in run.history]
        assert verdicts[1] is Verdict.KEEP
        assert verdicts[3] is Verdict.RESTORE
    lines = [[line.to_dict() for line in run.history] for run in runs]
    for line in (*lines[0], *lines[1]):
        del line["seconds"], line["train_seconds"]
    assert lines[0] == lines[1]
    assert memory.scores.to_dict() == disk.scores.to_dict()
    assert memory.settings == disk.settings
    assert memory.labels.to_dict() == disk.labels.to_dict()
    assert memory.made.best_epoch == disk.made.best_epoch
    one, two = memory.model(), disk.model()
    assert not one.training
    assert one.spec == two.spec
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    for file in ("labels.csv", "split.csv", "config.yaml"):
        assert memory.files.read(file) == disk.files.read(file)


def test_its_predictions_are_those_of_its_model(runs):
    memory, disk = runs
    collection = make_collection()
    rows = collection.splits["test"]
    assert memory.predictions.keys() == disk.predictions.keys()
    for name, values in memory.predictions.items():
        np.testing.assert_array_equal(values, disk.predictions[name])
    wanted = predict(memory.model(), collection.images, rows)
    np.testing.assert_array_equal(memory.predictions["network-last"], wanted)
    np.testing.assert_array_equal(truth_of(memory), collection.truth[rows])
    found = evaluate(memory, split="val", collection=collection)
    assert found.images == 16
    assert predictions_of(memory, "val")["teacher-best"].shape == (16, 4)


def test_it_keeps_no_checkpoint_of_the_last_epoch(runs):
    memory, disk = runs
    assert disk.exists("last.ckpt")
    assert not memory.exists("last.ckpt")
    assert memory.exists("keep.ckpt")


def test_what_needs_a_folder_says_so(runs):
    memory, _ = runs
    with pytest.raises(AdagcError, match=r"scores\.json is in memory only"):
        memory.path("scores.json")
    with pytest.raises(AdagcError, match="this run is in memory only"):
        write_report(memory)
    with pytest.raises(UsageError, match="only a run with a folder can be continued"):
        train(CONFIG, method(), resume=True, collection=make_collection())


def test_two_runs_in_memory_know_nothing_of_each_other():
    collection = make_collection()
    one = train(CONFIG, AssumeNegative(), collection=collection)
    two = train(CONFIG, AssumeNegative(), collection=collection)
    del one.files.content["scores.json"]
    assert one.scores is None
    assert two.scores is not None
    with pytest.raises(AdagcError, match="has no environ"):
        one.read_json("environ.json")


# -- folders ---------------------------------------------------------------------------------


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    return DiskFolder(tmp_path) if request.param == "disk" else MemoryFolder()


def test_files_by_name(folder):
    assert not folder.exists("a.txt")
    assert folder.names("weights") == []
    with pytest.raises(FileNotFoundError):
        folder.read("a.txt")
    folder.write("a.txt", "ä\n")
    folder.append("a.txt", "ö\n")
    assert folder.read("a.txt") == "ä\nö\n".encode()
    folder.append("new.txt", "x")
    assert folder.read("new.txt") == b"x"
    folder.write("weights/b", b"2")
    folder.write("weights/a", b"1")
    assert folder.names("weights") == ["weights/a", "weights/b"]
    folder.write_json("x.json", {"ü": 1})
    assert folder.read("x.json") == '{\n "ü": 1\n}\n'.encode()


def test_a_file_is_replaced_whole_or_not_at_all(folder):
    folder.write("a", b"old")

    def fail():
        with folder.replacing("a") as target:
            target.write(b"ne")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert folder.read("a") == b"old"

"""Completed labels on record: what benchmarks/complete.py keeps, and what the page makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from adagc.labels import LabelTable, write_labels
from adagc.methods import find
from adagc.training.experiment import train
from adagc.training.runs import Run
from completion.test_complete import config, made

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import completed
import lines
import pages

import complete


def line(seed: int, sample: str, precision: float, recall: float | None) -> dict:
    names = [*completed.COLUMNS, *completed.CLEANLAB]
    git = {"processor": "a processor", "packages": {"torch": "2.0"}, "git": "abc"}
    values = dict.fromkeys(names, 0.25) | {"precision": precision, "recall": recall}
    return {"method": "auto", "seed": seed, "sample": sample, **values, "machine": git}


@pytest.fixture
def records(tmp_path, monkeypatch) -> Path:
    """A place for records of this test."""
    monkeypatch.setattr(completed, "RECORDS", tmp_path)
    monkeypatch.setattr(pages, "DATA", tmp_path)
    return tmp_path


def test_the_page_has_means_deviations_and_every_seed(records):
    assert not dict(pages.pages("complete.md"))  # nothing is measured yet
    for one in (
        line(41, "in-sample", 0.9, 0.6), line(40, "in-sample", 0.8, 0.5),
        line(40, "out-of-fold", 0.7, None),
    ):  # fmt: skip
        lines.append(completed.path_of("aid"), one)
    (text,) = dict(pages.pages("complete.md")).values()
    assert "| AID | Auto | in-sample | 85.0 ± 7.1 | 55.0 ± 7.1 | 25.0 ± 0.0 |" in text
    assert "| AID | Auto | out-of-fold | 70.0 |  | 25.0 |" in text
    assert "| AID | Auto | in-sample | 80.0 / 50.0 | 90.0 / 60.0 |" in text
    assert "| AID | Auto | out-of-fold | 70.0 / 0.0 |  |" in text
    said = " ".join(text.split())
    assert "reached on AID in-sample (85.0 / 55.0); missed on AID out-of-fold (70.0 / 0.0)" in said


def test_a_completion_is_recorded_once(records, tmp_path, monkeypatch, capsys):
    pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    import numpy as np

    values, truth = made(300)
    np.save(tmp_path / "values.npy", values)
    table = LabelTable(
        tuple(f"{i:05d}" for i in range(300)), ("a", "b", "c", "d", "e", "f"), truth.astype(np.int8)
    )
    write_labels(table, tmp_path / "truth.csv")
    run = train(config(tmp_path), find("AN")(), tmp_path / "bench" / "an" / "seed40-x")
    monkeypatch.setattr(complete, "ROUNDS", 1)
    words = ["complete.py", str(tmp_path / "bench"), "--methods", "an", "--seeds", "40", "41"]
    monkeypatch.setattr(sys, "argv", [*words, "--folds", "0", "--record", "ucm"])
    for _ in range(2):  # the second time it is read
        with pytest.raises(SystemExit):
            complete.main()
        (kept,) = lines.read(completed.path_of("ucm"))
        assert "in-sample" in capsys.readouterr().out
    assert (kept["method"], kept["seed"], kept["sample"]) == ("an", 40, "in-sample")
    assert {*completed.COLUMNS, *completed.CLEANLAB} <= kept.keys()
    found = complete.complete(Run.open(run.folder), part="train").quality
    assert kept["precision"] == found.precision
    assert kept["recall"] == found.recall
    assert json.dumps(kept)

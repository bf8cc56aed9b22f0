"""Thresholds that a user asks for: half, estimated, or a file."""

from __future__ import annotations

import json

import pytest

from adagc.cli import main
from adagc.errors import UsageError
from adagc.limits import choose, read_thresholds
from scripted import train_scripted

CLASSES = ("field", "tree", "water")


def test_choices():
    stored = (0.1, 0.2, 0.3)
    assert choose("half", CLASSES, stored).values == (0.5, 0.5, 0.5)
    for wanted in (None, "estimated"):
        found = choose(wanted, CLASSES, stored)
        assert found.values == stored
        assert found.estimated
        assert "estimated" in found.words
    assert not choose(None, CLASSES, (0.5, 0.5, 0.5)).estimated
    with pytest.raises(UsageError, match="no estimated thresholds"):
        choose("estimated", CLASSES, (0.5, 0.5, 0.5))


def test_files(tmp_path):
    wanted = {"water": 0.3, "field": 0.1, "tree": 0.2}
    (tmp_path / "a.json").write_text(json.dumps(wanted))
    (tmp_path / "b.json").write_text(json.dumps({"format": 1, "thresholds": wanted}))
    lines = "\n".join(f"{value},{name}" for name, value in wanted.items())
    (tmp_path / "c.csv").write_text(f"threshold,class\n{lines}\n")
    for name in ("a.json", "b.json", "c.csv"):
        assert read_thresholds(tmp_path / name, CLASSES) == (0.1, 0.2, 0.3)
        assert choose(str(tmp_path / name), CLASSES, ()).words == f"given in {name}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "cannot be read"),
        ("{", "cannot be read"),
        ("", "no columns class and threshold"),
        ('{"field": 0.1, "tree": 0.2}', "lacks water"),
        ('{"field": 0.1, "tree": 0.2, "watr": 0.2}', "did you mean 'water'"),
        ('{"field": 0.1, "tree": 0.2, "water": 2}', "2.0 for water is no probability"),
        ('{"field": NaN, "tree": 0.2, "water": 0.2}', "nan for field is no probability"),
        ("class,threshold\nfield,0.1\nfield,0.2\n", "names 'field' again"),
        ("class,threshold\nfield\n", "line 2 is too short"),
    ],
)
def test_bad_files(tmp_path, text, said):
    (tmp_path / "limits.csv").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_thresholds(tmp_path / "limits.csv", CLASSES)
    with pytest.raises(UsageError, match="no such file"):
        read_thresholds(tmp_path / "nosuch.csv", CLASSES)


def test_scores_with_other_thresholds_are_other_scores(tmp_path):
    from adagc.report.record import Record
    from adagc.training.scoring import evaluate
    from conftest import make_collection

    run = train_scripted(tmp_path / "run")
    before = run.read_json("scores.json")
    limits = dict.fromkeys(run.scores.classes, 0.0)
    (tmp_path / "zero.json").write_text(json.dumps(limits))
    for wanted, file in (
        ("half", "scores-half.json"), (str(tmp_path / "zero.json"), "scores-zero.json")
    ):  # fmt: skip
        tested = evaluate(run, collection=make_collection(), thresholds=wanted)
        assert run.read_json(file)["thresholds_from"] == tested.thresholds_from
        again = Record.of(run, wanted)  # from saved predictions
        assert again.scores.final.mean_f1 == pytest.approx(tested.final.mean_f1)
        assert again.thresholds == tested.thresholds
    # From a threshold of 0 on everything is predicted.
    assert tested.final.mean_recall == pytest.approx(1.0)
    assert "those of zero.json" in tested.limits_remark
    assert run.read_json("scores.json") == before  # what tables compare
    words = ["report", str(run.folder), "--thresholds", str(tmp_path / "zero.json")]
    assert main(words) == 0
    assert "Thresholds of classes are those of zero.json." in run.path("report.html").read_text()
    assert main([*words[:3], "nosuch.json"]) == 2

"""The demo: AdaGC beats AN on every seed with the default settings, on scenes made here."""

from __future__ import annotations

import json

import pytest

from adagc import demo
from adagc.cli import main
from adagc.errors import UsageError

KEYS = ("mean_average_precision", "mean_f1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adagc_beats_assuming_negatives(tmp_path, seed):
    result = demo.run_demo(tmp_path / "demo", seed=seed)
    an, ours, bound = result["scores"].values()
    for key in KEYS:
        assert an[key] < ours[key] < bound[key], key
        assert 0 < result["gap_closed"][key] < 1


@pytest.fixture
def short(monkeypatch):
    """A demo of seconds: the same path, fewer scenes and epochs."""
    quick = {"scenes": 60, "epochs": 2, "absent": "skip"}
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, **quick})


def test_the_demo_prints_one_object_and_leaves_a_report(short, capsys, tmp_path):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["scores"]) == 3
    for scores in result["scores"].values():
        assert 0 < scores["mean_average_precision"] < 1
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "AdaGC" in page
    assert "GT w/ BCE" in page
    # An earlier demo is replaced; anything else is left alone.
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "all clean labels" in printed
    assert "of the gap" in printed
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        demo.run_demo(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_no_setting_of_the_demo_looks_at_clean_labels():
    from adagc.methods import find

    assert not find("AN").needs
    assert not find("AdaGC").needs
    assert demo.SETTINGS["scheme"] == "random"

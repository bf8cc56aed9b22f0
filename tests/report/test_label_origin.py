"""The hint in a report whether labels look random or dominant."""

from __future__ import annotations

import html
import shutil

import pytest

from adagc.choice import compare, hint
from adagc.cli import main
from adagc.methods import find
from adagc.methods.supposed import opposed
from adagc.training import held_out
from adagc.training.experiment import train
from adagc.training.runs import Run
from tiny import write_scenario

HEADING = "How labels were chosen"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs by method on the same scenes; "other" has other labels."""
    place = tmp_path_factory.mktemp("origin")
    scenario = write_scenario(place / "scenario", epochs=1)
    made = {
        title: train(scenario.config(0), find(title)(), place / title).folder
        for title in ("Area label", "Random cover", "Random label")
    }
    made["other"] = train(scenario.config(1), find("Random cover")(), place / "other").folder
    return made


def page(run, *against):
    assert main(["report", str(run), "--against", *map(str, against)]) == 0
    return html.unescape((run / "report.html").read_text())


def test_two_runs_with_opposite_suppositions_give_the_hint(runs):
    area, cover = (held_out.load(Run.open(runs[k])) for k in ("Area label", "Random cover"))
    expected = hint(
        compare(area.probabilities, cover.probabilities, area.observed),
        "Area label", "Random cover",
    )  # fmt: skip
    text = page(runs["Area label"], runs["Random label"], runs["Random cover"])
    assert HEADING in text
    assert expected in text
    assert expected in page(runs["Random cover"], runs["Area label"])  # either may be reported
    with_label = page(runs["Random label"], runs["Area label"])
    assert "for Area label against Random label;" in with_label


def test_without_a_pair_on_the_same_labels_there_is_none(runs, tmp_path):
    assert HEADING not in page(runs["Area label"], runs["other"])
    assert HEADING not in page(runs["Random cover"], runs["Random label"])
    older = tmp_path / "older"
    shutil.copytree(runs["Random cover"], older)
    shutil.rmtree(older / "validation")
    assert HEADING not in page(runs["Area label"], older)


def test_methods_of_a_plug_in_that_is_not_loaded_are_passed_over():
    assert opposed(["Theirs", "Random label", "Area label"]) == ("Area label", "Random label")
    assert opposed(["Area label", "Random label", "Random cover"]) == ("Area label", "Random cover")
    assert opposed(["Theirs", "Area label", "AN"]) is None

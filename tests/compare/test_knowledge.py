"""Told, estimated and none: the three states from a scenario to tables and the recommendation."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.jobs import Job, make_job
from adagc.bench.packs import pack, unpack
from adagc.bench.results import collect
from adagc.bench.scenarios import load
from adagc.bench.work import perform
from adagc.cli import main
from adagc.compare import render, tables
from adagc.compare.recommendation import recommend
from adagc.errors import UsageError
from adagc.paper.figures.cost import cost_points
from adagc.paper.figures.reading import footnotes, marked
from adagc.training.views import VIEWS
from fake_results import from_numbers, from_predictions
from tiny import write_scenario

VIEW = VIEWS["network-last"]


def knowing(results, **states):
    """The results, with rows that know something of label frequencies."""
    jobs = [replace(job, knows=states.get(job.label, job.knows)) for job in results.jobs]
    return replace(results, jobs=tuple(jobs))


@pytest.fixture
def results():
    rows = {"AN": [50.0, 51.0], "EPR": [60.0, 61.0], "LL-R": [55.0, 56.0], "ROLE": [52.0, 53.0]}
    return knowing(from_numbers(rows), EPR="estimated", ROLE="told", AN="none")


# -- tables ----------------------------------------------------------------------------------------


def test_every_form_of_a_table_marks_the_three_states(results):
    table = tables.build(results, view=VIEW)
    rows = {row.label: row for row in table.rows}
    assert {name: row.footnote for name, row in rows.items()} == {
        "AN": "", "EPR": "ᵉ", "LL-R": "", "ROLE": "ᵃ",
    }  # fmt: skip
    assert {name: row.knows for name, row in rows.items()} == {
        "AN": "none", "EPR": "estimated", "LL-R": "none", "ROLE": "told",
    }  # fmt: skip
    notes = " ".join(table.notes)
    assert "ᵃ is told the true label frequencies" in notes
    assert "ᵉ is given label frequencies that were estimated from observed labels." in notes
    assert "| EPRᵉ |" in render.markdown(table)
    assert "| ROLEᵃ |" in render.markdown(table)
    assert r"EPR\textsuperscript{e} &" in render.latex([table])
    assert r"ROLE\textsuperscript{a} &" in render.latex([table])
    lines = list(csv.DictReader(io.StringIO(render.csv([table]))))
    assert {line["label"]: line["priors"] for line in lines} == {
        "AN": "none", "EPR": "estimated", "LL-R": "none", "ROLE": "told",
    }  # fmt: skip
    printed = json.loads(json.dumps(render.json([table])))
    (epr,) = [row for group in printed[0]["groups"] for row in group["rows"]
              if row["label"] == "EPR"]  # fmt: skip
    assert epr["knows"] == "estimated"


def test_figures_mark_them_too(results):
    names = marked([results])
    assert (names["EPR"], names["ROLE"], names["AN"]) == ("EPRᵉ", "ROLEᵃ", "AN")
    assert footnotes(names.values()) == "ᵃ is told label frequencies, ᵉ estimates label frequencies"
    points = {point.name: point for point in cost_points(results, VIEW)}
    assert (points["EPR"].told, points["EPR"].estimated) == (False, True)
    assert (points["ROLE"].told, points["ROLE"].estimated) == (True, False)


def test_records_of_earlier_versions_mean_what_they_meant():
    old = {
        "scenario": "s", "label": "EPR", "method": "EPR", "options": {"expected": None},
        "settings": {"seed": 0}, "folder": "f", "told": [],
    }  # fmt: skip
    assert Job(**old).informed == "told"
    assert Job(**{**old, "method": "LL-R", "options": {"final": 0.1}}).informed == "none"
    told = Job(**{**old, "method": "LL-R", "options": {"final": 0.25}, "told": ["final"]})
    assert told.informed == "told"


# -- the recommendation ----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["estimated", "told"])
def test_an_estimate_may_be_recommended_and_the_truth_may_not(tmp_path, state):
    rng = np.random.default_rng(0)
    truth = rng.random((200, 4)) < 0.4
    rows = {
        title: {
            seed: np.clip(0.5 + strength * (truth - 0.5) + 0.4 * rng.normal(size=truth.shape), 0, 1)
            .astype(np.float32)
            for seed in range(3)
        }
        for title, strength in (("AN", 0.1), ("WAN", 0.2), ("EPR", 0.9))
    }  # fmt: skip
    found = recommend(knowing(from_predictions(tmp_path, truth, rows), EPR=state), VIEW)
    if state == "told":
        assert found.leader == "WAN"
        assert found.informed == "EPR"
        assert found.estimating == ()
        assert "EPR, which is told the true label frequencies" in found.sentence
        return
    assert found.recommended == "EPR"
    assert found.informed == ""
    assert found.sentence.startswith("Use EPR: ")
    assert (
        "EPR is given label frequencies that were estimated from observed labels." in found.sentence
    )
    assert found.to_dict()["estimating"] == ("EPR",)


# -- from a scenario to a job ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priors", "wanted"),
    [
        ("estimated", {"AN": "none", "EPR": "estimated", "LL-R": "estimated", "ROLE": "estimated"}),
        ("published", {"AN": "none", "EPR": "told", "LL-R": "none", "ROLE": "none"}),
        ("truth", {"AN": "none", "EPR": "told", "LL-R": "told", "ROLE": "told"}),
    ],
)
def test_a_job_knows_what_its_run_will_know(tmp_path, priors, wanted):
    scenario = write_scenario(tmp_path / "tiny", priors=priors)
    jobs = {title: make_job(scenario, title, 0, tmp_path) for title in (*wanted, "ROLE-oracle")}
    assert {title: jobs[title].informed for title in wanted} == wanted
    assert jobs["ROLE-oracle"].informed == "told"
    hand = make_job(scenario, "LL-R", 0, tmp_path, options={"final": 0.25})
    assert (hand.told, hand.informed) == (("final",), "told")
    tuned = make_job(scenario, "LL-R", 0, tmp_path, options={"final": 0.1}, tuned_on="noisy")
    assert (tuned.told, tuned.informed) == ((), "none")  # an option that is tuned is not estimated


@pytest.mark.parametrize(("source", "state"), [("estimated", "estimated"), (None, "told")])
def test_a_file_is_what_it_says_that_it_is(tmp_path, source, state):
    values = {"classes": ["a"], "frequencies": [0.5]} | ({"source": source} if source else {})
    (tmp_path / "p.json").write_text(json.dumps(values))
    scenario = write_scenario(tmp_path / "tiny", priors=str(tmp_path / "p.json"))
    one = make_job(scenario, "EPR", 0, tmp_path)
    assert one.informed == state
    (tmp_path / "p.json").write_text(json.dumps({**values, "frequencies": [0.4]}))
    assert make_job(scenario, "EPR", 0, tmp_path).folder != one.folder
    with pytest.raises(UsageError, match="neither a file nor one of"):
        make_job(scenario.with_settings(priors="nowhere.json"), "EPR", 0, tmp_path)


@pytest.mark.parametrize(
    "name", ["aid-random", "reben-dominant", "ucm-features-tuned", "demo-random"]
)
def test_the_papers_scenarios_mean_what_they_meant(name, monkeypatch):
    for variable in ("ADAGC_DATA", "ADAGC_FEATURES", "ADAGC_REBEN"):
        monkeypatch.setenv(variable, "somewhere")
    assert load(name).config(0).priors == "published"


def test_the_told_scenario_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("ADAGC_FEATURES", str(tmp_path))
    for file in ("truth.csv", "split.csv", "embeddings.npy"):
        (tmp_path / file).write_text("x")
    scenario = load("aid-features-told")
    states = {
        title: make_job(scenario, title, 0, tmp_path).informed
        for title in ("LL-R", "RCML", "EPR", "Dist-PU", "ROLE", "AN")
    }
    assert states == {
        "LL-R": "told", "RCML": "told", "EPR": "told", "Dist-PU": "told", "ROLE": "none",
        "AN": "none",
    }  # fmt: skip


# -- the whole way ---------------------------------------------------------------------------------


def test_a_bench_of_both_kinds_and_its_pack(tmp_path, capsys):
    write_scenario(tmp_path / "tiny", {"seeds": [0]}, priors="published")
    words = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "EPR", "LL-R", "--workers", "1"]
    for priors in ([], ["--priors", "estimated"]):
        assert main([*words, "--out", str(tmp_path / "runs"), *priors]) == 0
        capsys.readouterr()
        shown = (tmp_path / "runs" / "tiny" / "table.md").read_text()
        assert ("| EPRᵃ |" in shown, "| EPRᵉ |" in shown) == (not priors, bool(priors))
        assert ("| LL-Rᵉ |" in shown) == bool(priors)
    scenario = load(str(tmp_path / "tiny")).with_settings(priors="estimated")
    jobs = [make_job(scenario, title, 0, tmp_path / "runs") for title in ("AN", "EPR", "LL-R")]
    assert all(job.status == "finished" for job in jobs)
    perform(jobs[1])  # nothing is left to do
    found = collect("tiny", jobs)
    pack(scenario, found, tmp_path / "pack", [VIEW])
    _, again = unpack(tmp_path / "pack")
    assert {label: again.knows(label) for label in again.labels} == {
        "AN": "none", "EPR": "estimated", "LL-R": "estimated",
    }  # fmt: skip
    (packed,) = again.of("EPR")
    assert packed.run.priors == jobs[1].run.priors
    assert str(tmp_path) not in Path(tmp_path / "pack" / "pack.json").read_text()

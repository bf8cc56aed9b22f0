"""The experiment on thresholds: what it measures, records and says."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from adagc import priors
from adagc.cli import main
from adagc.errors import AdagcError
from adagc.training.config import RunConfig
from adagc.training.views import VIEWS
from tiny import write_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import thresholds


@pytest.fixture(scope="module")
def arrays():
    """Scores that are far too low, observed labels and clean labels of 200 images."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-4 * (rng.standard_normal((200, 5)) - np.linspace(0, 1.5, 5))))
    truth = rng.random(p.shape) < p
    truth[~truth.any(axis=1), 0] = True
    observed = np.zeros(p.shape, int)
    observed[np.arange(200), np.where(truth, rng.random(p.shape), -1).argmax(axis=1)] = 1
    return 0.2 * p**2, observed, truth


def test_scores_are_those_of_scikit_learn(arrays):
    p, _, truth = arrays
    limits = np.quantile(p, 0.7, axis=0)
    wanted = [f1_score(truth, p >= limits, average=kind) for kind in ("macro", "micro")]
    wanted.append((truth == (p >= limits)).mean())
    assert thresholds.measured(truth, p, limits) == pytest.approx(100 * np.array(wanted), abs=1e-3)


def test_every_rule_is_between_half_and_the_best_in_hindsight(arrays):
    p, observed, truth = arrays
    found = thresholds.compared(p[:100], observed[:100], p[100:], truth[100:])
    assert list(found) == [*thresholds.RULES, thresholds.ORACLE]
    for rule in thresholds.RULES[1:]:
        assert found["half"][0] < found[rule][0] <= found[thresholds.ORACLE][0]


def test_clean_labels_change_no_threshold_but_those_in_hindsight(arrays, monkeypatch):
    p, observed, truth = arrays
    used = []
    monkeypatch.setattr(thresholds, "measured", lambda truth, p, limits: used.append(limits) or [])
    for clean in (truth, ~truth):
        thresholds.compared(p, observed, p, clean)
    first, second = np.split(np.array(used), 2)
    assert np.array_equal(first[:-1], second[:-1])
    assert not np.array_equal(first[-1], second[-1])


def test_finished_runs_are_read_once(tmp_path, capsys):
    scenario = write_scenario(tmp_path / "tiny", scenes=120)
    bench = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "--workers", "1"]
    assert main([*bench, "--seeds", "0", "--out", str(tmp_path / "runs")]) == 0
    folder = tmp_path / "runs" / scenario.name
    for _ in range(2):
        thresholds.run("demo", folder, tmp_path)
    (line,) = thresholds.read(tmp_path / "thresholds-demo.jsonl")
    assert (line["method"], line["seed"], set(line["scores"])) == ("AN", 0, set(VIEWS))
    (place,) = folder.glob("an/seed*/")
    scores = json.loads((place / "scores.json").read_text())["networks"]["network"]["last"]
    usual = line["scores"]["network-last"][RunConfig.thresholds]
    assert usual[0] == pytest.approx(100 * scores["mean_f1"], abs=0.2)  # stored in four digits
    shutil.copytree(place, place.with_name("seed0-other"))
    with pytest.raises(AdagcError, match=r"AN with seed 0 is recorded from .* delete one"):
        thresholds.run("demo", folder, tmp_path)
    with pytest.raises(AdagcError, match="no finished runs: make them with  adagc bench"):
        thresholds.run("demo", tmp_path / "nothing", tmp_path)


def line(data: str, method: str, *values: float) -> dict:
    """A line whose rules have these values in all metrics."""
    rules = [*thresholds.RULES, thresholds.ORACLE]
    cell = {rule: [value] * 3 for rule, value in zip(rules, values, strict=True)}
    return {"data": data, "method": method, "seed": 0, "scores": {"averaged-last": cell}}


RECORDS = [
    line("aid", "AN", 20, 40, 50, 55, 58, 60, 70),
    line("aid", "WAN", 40, 60, 62, 61, 60, 60, 70),
    line("demo", "AN", 30, 30, 40, 35, 35, 45, 50),
]


def test_shares_are_mean_gains_over_mean_distances():
    own = list(thresholds.cells(RECORDS, "aid"))
    assert thresholds.closed(own, "pooled-f1") == pytest.approx(100 * 30 / 40)
    assert thresholds.overall(RECORDS, "pooled-f1") == pytest.approx((75 + 75) / 2)
    assert thresholds.worth(RECORDS, "expected-f1") == pytest.approx((65 + 50) / 2)
    assert thresholds.better(RECORDS, "pooled-f1", "expected-f1") == pytest.approx(200 / 3)
    assert list(thresholds.cells(RECORDS, "aid", method="WAN", view="network-last")) == []


def test_the_sentence_says_which_rule_closes_most():
    said = thresholds.verdict(RECORDS)
    assert "it closes 75 % and 75 % in mF1 and micro-F1, the most of all rules" in said
    assert "(expected-f1 58 % and 58 %, " in said
    worse = [line("aid", "AN", 20, 40, 65, 55, 58, 60, 70)]
    assert "less than expected-f1 here" in thresholds.verdict(worse)


def test_tables_have_means_and_shares():
    records = [one | {"scores": dict.fromkeys(thresholds.SHOWN, one["scores"]["averaged-last"])}
               for one in RECORDS]  # fmt: skip
    row = thresholds.table(records).splitlines()[3]
    assert row.startswith("| AID | averaged network | 30.0 | 50.0 (50 %) | 56.0 (65 %) |")
    assert row.endswith("| 60.0 (75 %) | 70.0 |")
    assert "%" not in thresholds.table(records, "OA")
    assert thresholds.by_method(records).splitlines()[2:] == [
        "| AN | 20.0 / 50.0 / 60.0 / 70.0 | 30.0 / 40.0 / 45.0 / 50.0 |",
        "| WAN | 40.0 / 62.0 / 60.0 / 70.0 |  |",
    ]


def test_the_default_is_the_rule_that_the_records_speak_for():
    default = inspect.signature(priors.thresholds).parameters["rule"].default
    assert default == RunConfig.thresholds == thresholds.DEFAULT
    records = thresholds.lines(development=False) or thresholds.lines(development=True)
    best = max(thresholds.worth(records, rule) for rule in thresholds.RULES)
    assert thresholds.worth(records, default) > best - 1  # less than a hundredth is a tie

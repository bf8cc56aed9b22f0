from __future__ import annotations

import io
import itertools
import json
import math
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from adagc.bench.jobs import Job, make_job, slug
from adagc.bench.results import collect
from adagc.bench.scenarios import load
from adagc.errors import AdagcError, MissingExtraError, UsageError
from adagc.labels import LabelTable, write_labels
from adagc.methods import find, outline, registry
from adagc.metrics import CRITERIA
from adagc.metrics.noisy import DEFAULT
from adagc.training.files import MethodBlock
from adagc.tuning import ledger
from adagc.tuning.search import Dimension, Trial, choose, flatness, grid, space
from adagc.tuning.study import Hindsight, Study, pooled_correlation, spearman
from adagc.tuning.tune import trial_epochs, tune, tune_all
from conftest import SPAWN, make_collection, make_labels
from tiny import settings_of, write_scenario

QUICK = {"share": 1.0, "epochs": 2}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(ledger, "_POLL", 0.02)


def write_arrays(folder: Path, *, shuffle: bool = False, **settings):
    """A scenario of embeddings; `shuffle` gives every image the clean labels of another one."""
    collection = make_collection()
    folder.mkdir(parents=True)
    names = collection.images.names
    np.save(folder / "embeddings.npy", collection.images.gather(np.arange(64)))
    make_labels(collection, folder / "single.csv")
    truth = collection.truth.copy()
    if shuffle:
        for rows in collection.splits.values():
            truth[rows] = truth[np.roll(rows, 1)]
    table = LabelTable(names, collection.classes, truth.astype(np.int8), kind="multi")
    write_labels(table, folder / "truth.csv")
    parts = [f"{names[row]},{part}" for part, rows in collection.splits.items() for row in rows]
    (folder / "split.csv").write_text("\n".join(["image,split", *parts]) + "\n")
    told = {
        "data": "array", "root": str(folder), "truth": str(folder / "truth.csv"),
        "labels": str(folder / "single.csv"), "split": str(folder / "split.csv"),
        "backbone": "mlp", "hidden": 8, "epochs": 2, "batch_size": 8, "learning_rate": 0.01,
        **settings,
    }  # fmt: skip
    about = {"title": "Arrays", "seeds": [3, 4]}
    (folder / "scenario.yaml").write_text(yaml.safe_dump({**told, "bench": about}))
    return load(str(folder))


@pytest.fixture
def arrays(tmp_path):
    return write_arrays(tmp_path / "arrays")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def trained(events):
    """(label, seed, epoch) of every epoch that was trained."""
    return [(e.job.label, e.job.seed, e.epoch) for e in events if e.kind == "epoch"]


def written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("seed*-*/*") if path.is_file()}


# What may be tried


def test_numbers_become_ranges_and_everything_else_stays_a_choice():
    class Odd(find("AN-LS")):
        title = "Odd"

    Odd.grid = {
        "flag": (True, False),
        "form": ("a", "b"),
        "maybe": (None, 1.0),
        "steps": (2, 8),
        "mixed": (1, 2.5),
        "down": (-2.0, -3.0),
        "decade": (0.01, 0.1),
        "less": (0.02, 0.1),
        "zero": (0.0, 5.0),
        "many": (1, 100),
        "single": (0.5,),
        "beyond": (0.1, 0.9),
        "counted": (1, 9),
    }
    Odd.ranges = {"beyond": (0.2, 0.5), "counted": (1.5, 4.5), "steps": (0, math.inf)}
    found = space(Odd)
    assert list(found) == list(Odd.grid)
    assert {name: dimension.values for name, dimension in found.items()} == Odd.grid
    assert {name: d.bounds for name, d in found.items() if d.bounds is not None} == {
        "steps": (2, 8), "mixed": (1.0, 2.5), "down": (-3.0, -2.0), "decade": (0.01, 0.1),
        "less": (0.02, 0.1), "zero": (0.0, 5.0), "many": (1, 100), "beyond": (0.2, 0.5),
        "counted": (2, 4),
    }  # fmt: skip
    assert [name for name, dimension in found.items() if dimension.log] == ["decade", "many"]
    assert [name for name, d in found.items() if d.whole] == ["steps", "many", "counted"]


@pytest.mark.parametrize("title", [t for t, method in registry().items() if method.grid])
def test_every_method_can_be_built_anywhere_in_its_space(title):
    method = find(title)
    for name, dimension in space(method).items():
        ends = dimension.bounds or dimension.values
        low, high = method.ranges.get(name, (-math.inf, math.inf))
        for value in (*dimension.values, *ends):
            assert low <= value <= high
            assert getattr(method(**{name: value}), name) == value


@pytest.mark.parametrize("title", [t for t, method in registry().items() if not method.grid])
def test_a_method_without_a_grid_says_that_there_is_nothing_to_tune(title, arrays, out):
    with pytest.raises(UsageError, match=f"{title} has nothing to tune"):
        tune(arrays, title, out)
    assert not out.exists()


def test_the_grid_is_the_product_and_a_smaller_one_is_part_of_a_larger_one():
    dimensions = space(find("GR"))
    points = grid(dimensions)
    values = find("GR").grid
    slow = [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
    assert points == slow
    assert len(points) == 96
    some, more = grid(dimensions, 5), grid(dimensions, 20)
    assert (len(some), len(more)) == (5, 20)
    assert all(point in more for point in some)
    assert more == [point for point in points if point in more]  # in the order of the grid
    assert grid(dimensions, 1000) == points
    with pytest.raises(UsageError, match="trials"):
        grid(dimensions, 0)


def test_drawn_values_are_told_with_four_digits_and_stay_in_their_range():
    dimension = Dimension((0.05, 0.3), (0.05, 0.3))
    assert dimension.fit(0.123456789) == 0.1235
    assert dimension.fit(0.30000000001) == 0.3
    assert Dimension((0.1, 0.12346), (0.1, 0.12346)).fit(0.12346) == 0.12346
    assert Dimension((2, 9), (2, 9)).fit(7) == 7
    assert repr(Dimension((2, 9), (2, 9)).fit(3.0)) == "3"
    assert Dimension(("a",)).fit("a") == "a"
    assert [dimension.contains(value) for value in (0.05, 0.31, None, True)] == [
        True, False, False, False,
    ]  # fmt: skip
    values = (3, 3.0, 2.5, 10, math.inf, math.nan)
    assert [Dimension((2, 9), (2, 9)).contains(value) for value in values] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    tenfold = Dimension((1.0, 10000.0), (1.0, 10000.0), log=True)
    assert [tenfold.slice(value) for value in (1, 9, 11, 150, 9999, 10000)] == [0, 0, 1, 2, 3, 3]
    plain = Dimension((0.0, 8.0), (0.0, 8.0))
    assert [plain.slice(value) for value in (0, 1.9, 2.1, 8)] == [0, 0, 1, 3]


# What is chosen


def ended(score, state="finished", **options):
    noisy = {} if score is None else {0: score}
    return Trial(options, state, noisy, seconds=1.0, epochs=2)


def test_the_best_mean_over_seeds_is_chosen_and_of_equals_the_first():
    one = Trial({"a": 1}, "finished", {0: 0.30, 1: 0.50}, 1.0, 4)
    two = Trial({"a": 2}, "finished", {0: 0.45, 1: 0.37}, 1.0, 4)
    half = Trial({"a": 3}, "failed", {0: 0.99}, 1.0, 4)
    assert one.score == 0.40
    assert choose([half, one, two]) is two
    assert choose([ended(0.4, a=1), ended(0.4, a=2)]).options == {"a": 1}
    assert choose([half, ended(None, "pruned", a=1)]) is None


def test_flatness_by_hand():
    dimensions = {"a": Dimension((1, 2), (1, 2)), "b": Dimension((0.0, 8.0), (0.0, 8.0))}
    trials = [
        ended(0.400, a=1, b=0.0), ended(0.405, a=2, b=0.0), ended(0.310, a=1, b=8.0),
        ended(0.390, a=2, b=8.0), ended(None, "failed", a=2, b=8.0),
    ]  # fmt: skip
    flat = flatness(trials, dimensions, "grid", "noisy-map")
    assert (flat.trials, flat.near) == (4, 2)
    assert flat.drop == pytest.approx(0.405 - 0.395)
    assert flat.spans == {"a": pytest.approx(0.005), "b": pytest.approx(0.015)}
    # The same range in quarters: 1.9 is a neighbour of 0, not a value of its own.
    drawn = [ended(0.40, b=0.0), ended(0.20, b=1.9), ended(0.35, b=7.0)]
    only = {"b": dimensions["b"]}
    assert flatness(drawn, only, "tpe", "noisy-map").spans == {"b": pytest.approx(0.05)}
    assert flatness(drawn, only, "grid", "noisy-map").spans == {"b": pytest.approx(0.20)}
    assert flatness([], only, "grid", "noisy-map") is None


# Whether noisy labels chose well


def slow_spearman(pairs):
    """Every rank by counting, every sum by a loop."""
    ranks = []
    for side in range(2):
        mine = [pair[side] for pair in pairs]
        ranks.append([sum(w < v for w in mine) + (sum(w == v for w in mine) + 1) / 2 for v in mine])
    means = [sum(r) / len(r) for r in ranks]
    both = sum((a - means[0]) * (b - means[1]) for a, b in zip(*ranks, strict=True))
    sizes = [sum((r - m) ** 2 for r in rs) for rs, m in zip(ranks, means, strict=True)]
    return both / math.sqrt(sizes[0] * sizes[1]) if all(sizes) else None


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-9, 9)), min_size=3, max_size=12))
def test_spearman_is_its_slow_twin(pairs):
    expected = slow_spearman(pairs)
    assert spearman(pairs) == (None if expected is None else pytest.approx(expected, abs=1e-9))


def test_spearman_by_hand():
    assert spearman([(1, 10), (2, 20), (3, 30)]) == pytest.approx(1)
    assert spearman([(1, 3), (2, 2), (3, 1)]) == pytest.approx(-1)
    # Ranks 1 2.5 2.5 4 and 1 3 2 4: covariance 4.5 of √(4.5 · 5).
    assert spearman([(1, 1), (2, 3), (2, 2), (3, 9)]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert spearman([(1, 2), (2, 3)]) is None
    assert spearman([(1, 2), (1, 3), (1, 4)]) is None


def study_of(trials, hindsight, **changes):
    facts = {
        "scenario": "tiny", "method": "LL-R", "sampler": "grid", "by": "last",
        "select": "noisy-map", "share": 0.5, "epochs": 10, "seeds": (0,), "told": {},
        "tuned_on": "noisy", "space": space(find("LL-R")),
    }  # fmt: skip
    return Study(**{**facts, **changes}, trials=tuple(trials), hindsight=tuple(hindsight))


def test_what_the_choice_costs_in_hindsight():
    trials = [ended(0.30, final=0.05), ended(0.32, final=0.1), ended(None, "failed", final=0.2),
              ended(0.31, final=0.3)]  # fmt: skip
    clean = [Hindsight(0.70, 0.5), Hindsight(0.60, 0.6), None, Hindsight(0.65, None)]
    found = study_of(trials, clean).correlation
    assert found.trials == 3
    assert found.test == pytest.approx(-1)  # noisy 0.30 < 0.31 < 0.32, clean 0.70 > 0.65 > 0.60
    assert found.validation is None  # two are not enough
    assert found.lost == pytest.approx(0.10)
    untested = study_of(trials, [None if c is None else Hindsight(None, 0.5) for c in clean])
    assert (untested.correlation.test, untested.correlation.lost) == (None, None)


def test_pooled_over_methods_the_best_of_all_is_the_choice():
    one = study_of([ended(0.30, final=0.1), ended(0.31, final=0.2)],
                   [Hindsight(0.5, None), Hindsight(0.6, None)])  # fmt: skip
    two = study_of([ended(0.40, final=0.1), ended(0.20, final=0.2)],
                   [Hindsight(0.55, None), Hindsight(0.4, None)], method="LL-Ct")  # fmt: skip
    assert one.correlation.test is None
    pooled = pooled_correlation([one, two])
    assert pooled.trials == 4
    assert pooled.test == pytest.approx(
        spearman([(0.3, 0.5), (0.31, 0.6), (0.4, 0.55), (0.2, 0.4)])
    )
    assert pooled.lost == pytest.approx(0.05)
    with pytest.raises(UsageError, match="other, tiny"):
        pooled_correlation([one, study_of([], [], scenario="other")])


# Searching


def test_a_grid_is_trained_once_and_the_best_noisy_score_is_chosen(tmp_path, out):
    scenario = write_scenario(tmp_path / "tiny")
    events = []
    study = tune(scenario, "an-ls", out, share=0.5, epochs=2, on_event=events.append)
    values = [0.05, 0.1, 0.2]
    assert [trial.options for trial in study.trials] == [{"smoothing": v} for v in values]
    assert trained(events) == [(f"AN-LS smoothing={v}", 0, e) for v in values for e in (1, 2)]
    runs = sorted((out / "tiny" / "tune").rglob("history.jsonl"))
    scores, seconds = {}, {}
    for path in runs:
        config = yaml.safe_load((path.parent / "config.yaml").read_text())
        assert (config["share"], config["epochs"], config["seed"]) == (0.5, 2, 0)
        assert len((path.parent / "labels.csv").read_text().splitlines()) > 12
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        value = config["method"]["smoothing"]
        scores[value] = lines[-1]["criteria"]["network"][DEFAULT]
        seconds[value] = sum(line["seconds"] for line in lines)
    assert [trial.score for trial in study.trials] == [scores[value] for value in values]
    assert [trial.seconds for trial in study.trials] == [seconds[value] for value in values]
    assert study.best.options["smoothing"] == max(scores, key=scores.get)
    # Nothing is done again, and another share is another study.
    before, again = written(out), []
    assert tune(scenario, "AN-LS", out, share=0.5, epochs=2, on_event=again.append) == study
    assert written(out) == before
    assert trained(again) == []
    other = tune(scenario, "AN-LS", out, share=1.0, epochs=2, trials=1, on_event=again.append)
    assert len(other.trials) == 1
    assert len(trained(again)) == 2


def test_the_choice_is_written_as_a_method_file_that_bench_reads(arrays, out, tmp_path):
    (tmp_path / "arrays" / "elr.yaml").write_text(
        "method: {title: ELR, momentum: 0.8, form: binary}"
    )
    scenario = load(str(tmp_path / "arrays"))
    study = tune(scenario, "ELR", out, trials=2, **QUICK)
    assert study.told == {"form": "binary"}  # momentum is tuned
    path = study.write(tmp_path / "tuned")
    assert path == tmp_path / "tuned" / "elr.yaml"
    chosen = {"form": "binary", **study.best.options}
    assert set(chosen) == {"form", "weight", "momentum"}
    assert scenario.with_options(tmp_path / "tuned").told("ELR") == chosen
    text = path.read_text()
    by = CRITERIA[DEFAULT]
    for word in ("arrays", "100 %", "last of 2 epochs", "seed 3", "grid", "2 trials (2 finished)",
                 f"({by.title})", by.shown(study.best.score)):  # fmt: skip
        assert word in text
    for run in (out / "arrays" / "tune" / "elr" / "grid").glob("*/*/config.yaml"):
        assert yaml.safe_load(run.read_text())["method"]["form"] == "binary"
    # Beside a scenario it is a config for `adagc train`, as the others there.
    beside = study.write(tmp_path / "arrays")
    assert settings_of(beside) == {
        **settings_of(tmp_path / "arrays" / "scenario.yaml"),
        "method": {"title": "ELR", "tuned_on": "noisy", **chosen},
    }
    assert load(str(tmp_path / "arrays")).told("ELR") == chosen


def test_tuning_does_not_hide_that_other_options_were_chosen_by_clean_labels(out, arrays, tmp_path):
    (tmp_path / "arrays" / "elr.yaml").write_text(
        "method: {title: ELR, momentum: 0.8, form: binary, tuned_on: clean}"
    )
    scenario = load(str(tmp_path / "arrays"))
    study = tune(scenario, "ELR", out, trials=1, **QUICK)
    text = study.write(tmp_path / "tuned").read_text()
    assert text.startswith("# Chosen by noisy validation labels")
    assert "; form by clean labels." in text
    tuned = scenario.with_options(tmp_path / "tuned")
    assert "form" in make_job(tuned, "ELR", 3, out).told
    # Where everything that clean labels had chosen is tuned anew, nothing is told.
    (tmp_path / "arrays" / "elr.yaml").write_text(
        "method: {title: ELR, momentum: 0.8, tuned_on: clean}"
    )
    anew = load(str(tmp_path / "arrays"))
    tune(anew, "ELR", out, trials=1, **QUICK).write(tmp_path / "anew")
    assert make_job(anew.with_options(tmp_path / "anew"), "ELR", 3, out).told == ()


def test_the_mean_over_seeds_and_the_best_epoch(arrays, out):
    study = tune(arrays, "AN-LS", out, share=1.0, epochs=3, seeds=(3, 4), by="best")
    for trial in study.trials:
        assert list(trial.noisy) == [3, 4]
        assert trial.score == pytest.approx((trial.noisy[3] + trial.noisy[4]) / 2)
        place = out / "arrays" / "tune" / "an-ls" / "grid" / slug(trial.name)
        for seed in (3, 4):
            (run,) = place.glob(f"seed{seed}-*/history.jsonl")
            lines = [json.loads(line) for line in run.read_text().splitlines()]
            values = [line["criteria"]["network"][DEFAULT] for line in lines]
            assert trial.noisy[seed] == max(values)
    # The same runs, judged by their last epoch.
    before = written(out)
    last = tune(arrays, "AN-LS", out, share=1.0, epochs=3, seeds=(3, 4), by="last")
    assert written(out) == before
    assert all(a.score <= b.score for a, b in zip(last.trials, study.trials, strict=True))


@pytest.mark.parametrize("select", [*CRITERIA])
def test_trials_are_compared_by_the_criterion_that_is_asked_for(arrays, out, select):
    study = tune(arrays, "ELR", out, share=1.0, epochs=3, trials=3, select=select)
    assert study.select == select
    for trial in study.trials:
        place = out / "arrays" / "tune" / "elr" / "grid" / slug(trial.name)
        (run,) = place.glob("seed3-*/")
        lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
        assert trial.score == lines[-1]["criteria"]["network"][select]
        # The runs choose their epochs by it, too.
        assert yaml.safe_load((run / "config.yaml").read_text())["select"] == select
    assert study.best.score == max(trial.score for trial in study.trials)
    assert f"by {CRITERIA[select].title}, {CRITERIA[select].shown(study.best.score)}." in (
        study.sentence()
    )
    assert study.to_dict()["select"] == select


def test_the_best_score_comes_first_where_scores_are_negative():
    trials = [ended(-2.0, final=0.05), ended(None, "failed", final=0.1), ended(-1.5, final=0.2)]
    study = study_of(trials, [None] * 3, select="tempered")
    rows = [line.split() for line in render(study).splitlines() if "0." in line]
    assert [row[:2] for row in rows] == [["0.2", "-1.500"], ["0.05", "-2.000"], ["0.1", "–"]]
    assert rows[0][-1] == "chosen"
    with pytest.raises(UsageError, match="noisy-map, tempered"):
        pooled_correlation([study, study_of(trials, [None] * 3)])


def test_a_method_says_how_many_epochs_its_trials_need(tmp_path, out):
    scenario = write_arrays(tmp_path / "arrays", epochs=14)
    epochs = {
        title: tune(scenario, title, out, share=1.0, trials=1).epochs
        for title in ("AN-LS", "RCML", "AdaGC")
    }
    assert epochs == {"AN-LS": 10, "RCML": 14, "AdaGC": 14}  # RCML would take 20
    assert tune(scenario, "AdaGC", out, share=1.0, trials=1, epochs=3).epochs == 3
    assert trial_epochs(scenario.with_settings(epochs=4), find("AN-LS")) == 4
    assert trial_epochs(scenario.with_settings(epochs=40), find("RCML")) == 20


@pytest.mark.filterwarnings("ignore:calibration starts")
def test_a_forced_trigger_is_told(arrays, out):
    forced = tune(arrays, "AdaGC", out, trials=2, share=1.0, epochs=4)
    (run, _) = sorted(out.rglob("history.jsonl"))
    assert json.loads(run.read_text().splitlines()[-1])["status"]["forced"]
    # A table of these runs says it, too: it is kept with the model.
    job = Job("arrays", "AdaGC", "AdaGC", {}, {"seed": 3}, str(run.parent))
    (note,) = collect("arrays", [job]).remarks()
    assert note.startswith("AdaGC, 1 of 1 runs: calibration was started by force")
    words = "2 of 2 trials: calibration was started by force (force_trigger)"
    assert words in forced.sentence()
    assert words in " ".join(render(forced).split())
    assert f"# remark:   {words}" in forced.to_yaml()
    assert words in forced.to_dict()["remarks"][0]
    block = MethodBlock("AdaGC", {"force_trigger": None, "patience": 9})
    scenario = replace(arrays, methods={"AdaGC": block})
    assert not tune(scenario, "AdaGC", out, trials=1, share=1.0, epochs=4).remarks


def test_clean_labels_cannot_change_the_choice(tmp_path, out):
    studies = {}
    for name, shuffle, oracle in (("a", False, True), ("b", True, True), ("c", False, False)):
        scenario = write_arrays(tmp_path / name, shuffle=shuffle, oracle=oracle)
        studies[name] = tune(scenario, "ELR", out, share=1.0, epochs=4, trials=4)
    trials = {
        name: [(t.options, t.state, t.noisy, t.epochs) for t in study.trials]
        for name, study in studies.items()
    }
    assert trials["a"] == trials["b"] == trials["c"]
    assert studies["a"].best.options == studies["b"].best.options == studies["c"].best.options
    # The clean labels were other ones, and the oracle was off: hindsight says so. By it another
    # trial would have been chosen.
    clean = {name: study.hindsight for name, study in studies.items()}
    assert len({trial.score for trial in studies["a"].trials}) == 4
    assert studies["b"].correlation.lost > 0
    assert all(x.test != y.test for x, y in zip(clean["a"], clean["b"], strict=True))
    assert all(x.validation != y.validation for x, y in zip(clean["a"], clean["b"], strict=True))
    assert [x.test for x in clean["a"]] == [x.test for x in clean["c"]]
    assert studies["c"].correlation.validation is None
    assert studies["c"].correlation.test == studies["a"].correlation.test


def test_hindsight_is_what_the_folders_say(arrays, out):
    for by in ("last", "best"):
        study = tune(arrays, "AN-LS", out, share=1.0, epochs=4, by=by)
        for trial, clean in zip(study.trials, study.hindsight, strict=True):
            place = out / "arrays" / "tune" / "an-ls" / "grid" / slug(trial.name)
            (run,) = place.glob("seed3-*/")
            scores = json.loads((run / "scores.json").read_text())["networks"]["network"][by]
            assert clean.test == scores["mean_average_precision"]
            lines = [json.loads(x) for x in (run / "history.jsonl").read_text().splitlines()]
            there = lines[scores["epoch"] - 1]["oracle"]["validation"]["network"]
            assert clean.validation == there["mean_average_precision"]
        shutil.rmtree(run / "weights")  # not needed any more
        (run / "scores.json").unlink()
        assert tune(arrays, "AN-LS", out, share=1.0, epochs=4, by=by).hindsight[-1].test is None
        shutil.rmtree(out)


def test_a_failing_value_is_reported_and_does_not_stop_the_others(arrays, out, monkeypatch):
    method = find("AN-LS")
    monkeypatch.setattr(method, "grid", {"smoothing": (0.1, 0.7, 0.2)})
    events = []
    study = tune(arrays, "AN-LS", out, **QUICK, on_event=events.append)
    assert [trial.state for trial in study.trials] == ["finished", "failed", "finished"]
    assert "method.smoothing must be at least 0 and at most 0.5" in study.trials[1].reason
    assert [e.text for e in events if e.kind == "failed"] == [study.trials[1].reason]
    assert study.best.options["smoothing"] in (0.1, 0.2)
    assert "1 failed" in study.to_yaml()
    # It is tried again by the next call, and only it.
    monkeypatch.setattr(method, "ranges", {})
    events.clear()
    mended = tune(arrays, "AN-LS", out, **QUICK, on_event=events.append)
    assert [trial.state for trial in mended.trials] == ["finished"] * 3
    assert trained(events) == [("AN-LS smoothing=0.7", 3, 1), ("AN-LS smoothing=0.7", 3, 2)]


def test_where_all_fail_the_reason_is_named(arrays, out, monkeypatch):
    monkeypatch.setattr(find("AN-LS"), "grid", {"smoothing": (0.7, 0.8)})
    study = tune(arrays, "AN-LS", out, **QUICK)
    assert (study.best, study.flatness) == (None, None)
    assert "none of 2 trials" in study.sentence()
    with pytest.raises(AdagcError, match=r"no trial of AN-LS finished .*smoothing"):
        study.write(out)
    json.dumps(study.to_dict(), allow_nan=False)
    render(study)


def test_a_run_whose_folder_was_deleted_is_trained_again(arrays, out):
    study = tune(arrays, "AN-LS", out, **QUICK)
    shutil.rmtree(out / "arrays" / "tune" / "an-ls" / "grid" / "smoothing-0.1")
    events = []
    again = tune(arrays, "AN-LS", out, **QUICK, on_event=events.append)
    assert {label for label, _, _ in trained(events)} == {"AN-LS smoothing=0.1"}
    assert [trial.noisy for trial in again.trials] == [trial.noisy for trial in study.trials]


# Several processes, and the end of one


def _help(place, out, name, meet, title, options):
    """A process that tunes and says what it trained."""
    done = []

    def note(event):
        if event.kind == "epoch":
            done.append([event.job.label, event.job.seed, event.epoch])
            time.sleep(0.03)  # so that the other one gets its share

    meet.wait(60)
    study = tune(load(str(place)), title, out, on_event=note, **options)
    (out / f"{name}.json").write_text(json.dumps([done, _without_times(study)]))


def _without_times(study):
    facts = study.to_dict()
    for trial in (*facts["trials"], facts["best"]):
        del trial["seconds"]
    return facts


@pytest.mark.parametrize(
    ("title", "options"),
    [
        ("ELR", {"seeds": [3, 4], "trials": 6, **QUICK}),
        ("AN-LS", {"sampler": "tpe", "trials": 8, **QUICK}),
    ],
)
def test_two_processes_share_one_study(tmp_path, out, title, options):
    write_arrays(tmp_path / "arrays")
    out.mkdir()
    meet = SPAWN.Barrier(2)
    both = [
        SPAWN.Process(target=_help, args=(tmp_path / "arrays", out, name, meet, title, options))
        for name in "ab"
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
        assert process.exitcode == 0
    (one, first), (two, second) = (json.loads((out / f"{name}.json").read_text()) for name in "ab")
    assert one
    assert two
    epochs = [tuple(epoch) for epoch in (*one, *two)]
    assert len(set(epochs)) == len(epochs)  # nothing was trained twice
    assert first == second
    assert len(first["trials"]) == options["trials"]
    assert all(trial["state"] in ("finished", "pruned") for trial in first["trials"])
    runs = len(options.get("seeds", [3])) * options["trials"]
    assert len(list(out.rglob("history.jsonl"))) == runs
    assert len(epochs) == sum(trial["epochs"] for trial in first["trials"])


def test_several_methods_in_two_processes(arrays, out, tmp_path):
    said = []

    def say(text):
        said.append(text)
        until = time.monotonic() + 60
        while len(list(out.rglob("history.jsonl"))) < 2 and time.monotonic() < until:
            time.sleep(0.02)  # the first trial is ours, the second the other process's

    found = tune_all(arrays, ["AN-LS", "LL-R"], out, workers=2, say=say, **QUICK)
    assert len([text for text in said if "seed 3: finished" in text]) < 7
    assert [study.method for study in found] == ["AN-LS", "LL-R"]
    assert [len(study.trials) for study in found] == [3, 4]
    assert said[-1] == "LL-R on arrays: 4 of 4 trials finished"
    alone = [tune(arrays, title, tmp_path / "b", **QUICK) for title in ("AN-LS", "LL-R")]
    assert [_without_times(study) for study in found] == [_without_times(study) for study in alone]
    assert pooled_correlation(found).trials == 7
    with pytest.raises(UsageError, match="GT w/ BCE has nothing to tune"):
        tune_all(arrays, ["AN-LS", "GT"], tmp_path / "c", **QUICK)
    assert not (tmp_path / "c").exists()
    with pytest.raises(UsageError, match="--workers"):
        tune_all(arrays, ["AN-LS"], out, workers=0)


def _die(place, out, options):
    """A process that is killed in the second epoch of its second trial."""
    seen = []

    def note(event):
        seen.append(event.kind)
        if seen.count("started") == 2 and event.epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    tune(load(str(place)), "AN-LS", out, on_event=note, **options)


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_killed_search_goes_on_where_it_was(tmp_path, out, sampler):
    scenario = write_arrays(tmp_path / "arrays")
    options = {"share": 1.0, "epochs": 4, "sampler": sampler, "trials": 3}
    process = SPAWN.Process(target=_die, args=(tmp_path / "arrays", out, options))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    events = []
    study = tune(scenario, "AN-LS", out, **options, on_event=events.append)
    whole = tune(scenario, "AN-LS", tmp_path / "whole", **options)
    assert _without_times(study) == _without_times(whole)
    assert [trial.state for trial in study.trials] == ["finished"] * 3
    # The first trial is not touched, the second goes on with its third epoch, behind the others.
    labels = [f"AN-LS {trial.name}" for trial in study.trials]
    expected = [(labels[1], 3, 3), (labels[1], 3, 4), *((labels[2], 3, e) for e in (1, 2, 3, 4))]
    assert sorted(trained(events)) == sorted(expected)


def test_an_interrupted_search_leaves_its_trial_to_the_next(arrays, out):
    def interrupt(event):
        if event.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(arrays, "AN-LS", out, **QUICK, on_event=interrupt)
    events = []
    study = tune(arrays, "AN-LS", out, **QUICK, on_event=events.append)
    assert [epoch for label, _, epoch in trained(events) if label.endswith("0.05")] == [2]
    assert [trial.epochs for trial in study.trials] == [2, 2, 2]


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_without_its_journal_a_study_is_found_again_in_the_folders(arrays, out, sampler):
    options = {**QUICK, "sampler": sampler, "trials": 3, "pruning": False}
    before = tune(arrays, "AN-LS", out, **options)
    files = written(out)
    (out / "arrays" / "tune" / "studies.journal").unlink()
    events = []
    after = tune(arrays, "AN-LS", out, **options, on_event=events.append)
    assert after == before
    assert trained(events) == []
    assert written(out) == files
    # Runs of other settings are not taken for its own.
    (out / "arrays" / "tune" / "studies.journal").unlink()
    other = tune(arrays, "AN-LS", out, **{**options, "epochs": 3, "trials": 1})
    assert [(trial.state, trial.epochs) for trial in other.trials] == [("finished", 3)]


def test_what_is_left_of_the_folders_is_taken_over_by_a_new_journal(arrays, out):
    options = {**QUICK, "sampler": "tpe", "pruning": False}
    first, second, third = tune(arrays, "LL-R", out, trials=3, **options).trials
    (out / "arrays" / "tune" / "studies.journal").unlink()
    shutil.rmtree(out / "arrays" / "tune" / "ll-r" / "tpe" / slug(second.name))
    events = []
    study = tune(arrays, "LL-R", out, trials=3, **options, on_event=events.append)
    assert study.trials[:2] == (first, third)
    assert {label for label, _, _ in trained(events)} == {f"LL-R {study.trials[2].name}"}


def test_a_journal_that_ends_in_the_middle_of_a_line_is_mended(arrays, out):
    study = tune(arrays, "AN-LS", out, **QUICK)
    journal = out / "arrays" / "tune" / "studies.journal"
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"wor')
    assert tune(arrays, "AN-LS", out, **QUICK) == study
    assert tune(arrays, "LL-R", out, **QUICK).trials
    journal.write_bytes(b"what is this\n" + journal.read_bytes())
    with pytest.raises(AdagcError, match=r"studies.journal is damaged: delete it"):
        tune(arrays, "AN-LS", out, **QUICK)


def test_a_process_that_died_while_drawing_does_not_count(arrays, out):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    options = {**QUICK, "sampler": "tpe", "pruning": False}
    study = tune(arrays, "ELR", out, trials=2, **options)
    storage = JournalStorage(JournalFileBackend(str(out / "arrays/tune/studies.journal")))
    (name,) = [one.study_name for one in optuna.get_all_study_summaries(storage)]
    optuna.load_study(study_name=name, storage=storage).ask()  # counts as running, has no options
    more = tune(arrays, "ELR", out, trials=4, **options)
    assert more.trials[:2] == study.trials
    assert len(more.trials) == 4


# TPE


@pytest.mark.parametrize(
    ("title", "start"),
    [("LL-R", {"final": 0.1}), ("ROLE", {"expected": 1.0, "rate": 10.0}), ("RCML", {"keep": 0.8})],
)
def test_options_that_are_left_open_start_at_their_published_number(tiny, tmp_path, title, start):
    plan = ledger.Plan(tiny, outline(title), tmp_path, "tpe", "last", "auc", (0,), False)
    assert plan.start == start


def test_tpe_starts_with_the_defaults_and_stays_in_its_ranges(arrays, out, monkeypatch):
    monkeypatch.setattr(find("ELR"), "grid", {"weight": (1, 2, 5), "momentum": (0.0, 0.5)})
    monkeypatch.setattr(find("ELR"), "ranges", {"weight": (2, 9), "momentum": (0.1, 1)})
    study = tune(arrays, "ELR", out, sampler="tpe", trials=6, pruning=False, **QUICK)
    # The default momentum, 0.9, is out of reach: such a start is no trial of this search.
    assert len(study.trials) == 6
    for trial in study.trials:
        assert isinstance(trial.options["weight"], int)
        assert 2 <= trial.options["weight"] <= 5
        assert 0.1 <= trial.options["momentum"] <= 0.5
    assert len({trial.options["momentum"] for trial in study.trials}) > 4
    monkeypatch.undo()
    study = tune(arrays, "ELR", out / "b", sampler="tpe", trials=1, **QUICK)
    assert study.trials[0].options == {"weight": 3.0, "momentum": 0.9}


def test_a_default_of_3_0_is_the_3_of_a_range_of_integers(arrays, out):
    """Optuna gives back 3 for 3.0, which would be another folder: one that nobody trains."""
    options = {**QUICK, "sampler": "tpe", "trials": 1}
    (trial,) = tune(arrays, "AdaGC", out, **options).trials
    assert repr(trial.options) == "{'weight': 3}"
    assert trial.state == "finished"
    events = []
    (out / "arrays" / "tune" / "studies.journal").unlink()
    assert tune(arrays, "AdaGC", out, **options, on_event=events.append).trials == (trial,)
    assert trained(events) == []


def test_tpe_counts_what_is_there_and_can_be_repeated(arrays, out):
    options = {**QUICK, "sampler": "tpe"}
    tune(arrays, "LL-R", out, trials=2, **options)
    events = []
    study = tune(arrays, "LL-R", out, trials=4, **options, on_event=events.append)
    assert len(study.trials) == 4
    assert len({label for label, _, _ in trained(events)}) == 2
    at_once = tune(arrays, "LL-R", out / "b", trials=4, **options)
    assert [t.options for t in at_once.trials] == [t.options for t in study.trials]


def test_a_trial_that_falls_behind_is_pruned_marked_and_never_chosen(arrays, out, monkeypatch):
    # A smoothing of one half teaches nothing at all: every target is 0.5.
    monkeypatch.setattr(find("AN-LS"), "grid", {"smoothing": (0.01, 0.5)})
    points = iter([0.02, 0.03, 0.04, 0.05, 0.06, 0.5])
    plan = {"share": 1.0, "epochs": 12, "sampler": "tpe", "trials": 6}
    monkeypatch.setattr(
        ledger.Plan, "found", lambda self: ({"smoothing": value} for value in points)
    )
    monkeypatch.setattr(ledger.Plan, "start", None)
    events = []
    study = tune(arrays, "AN-LS", out, **plan, on_event=events.append)
    *others, last = study.trials
    assert {trial.state for trial in others} == {"finished"}
    assert (last.options, last.state, last.score) == ({"smoothing": 0.5}, "pruned", None)
    assert last.epochs == 5  # a third is patience: steps count from 0
    (mark,) = out.rglob("pruned.json")
    assert json.loads(mark.read_text()) == {"epoch": 5}
    assert not list(out.rglob("*.failed.json"))
    assert events[-1].text == "pruned after epoch 5"
    assert study.best in others
    assert study.hindsight[-1] is None
    assert "(5 finished, 1 pruned)" in study.to_yaml()
    # It stays so, also for a journal that never heard of it.
    monkeypatch.undo()
    monkeypatch.setattr(find("AN-LS"), "grid", {"smoothing": (0.01, 0.5)})
    monkeypatch.setattr(ledger.Plan, "start", None)
    (out / "arrays" / "tune" / "studies.journal").unlink()
    events.clear()
    again = tune(arrays, "AN-LS", out, **plan, on_event=events.append)
    assert trained(events) == []
    assert sorted(again.trials, key=lambda t: t.options["smoothing"]) == list(study.trials)
    # Why an earlier attempt failed is of no interest any more.
    Path(f"{mark.parent}.failed.json").write_text('{"error": "no more room"}')
    again = tune(arrays, "AN-LS", out, **plan)
    assert [(t.state, t.reason) for t in again.trials if t.options == last.options] == [
        ("pruned", "")
    ]
    # Who does not want pruning gets the rest of the epochs.
    whole = tune(arrays, "AN-LS", out, **plan, pruning=False, on_event=events.append)
    assert [epoch for _, _, epoch in trained(events)] == list(range(6, 13))
    assert {(trial.state, trial.epochs) for trial in whole.trials} == {("finished", 12)}


def test_what_does_not_fit_is_refused(arrays, out):
    with pytest.raises(UsageError, match="--sampler must be one of grid, tpe"):
        tune(arrays, "LL-R", out, sampler="random")
    with pytest.raises(UsageError, match="--by must be one of last, best"):
        tune(arrays, "LL-R", out, by="first")
    with pytest.raises(UsageError, match="--select must be one of auc, noisy-map, likelihood"):
        tune(arrays, "LL-R", out, select="map")
    with pytest.raises(UsageError, match="--share"):
        tune(arrays, "LL-R", out, share=2.0)
    with pytest.raises(UsageError, match="--trials"):
        tune(arrays, "LL-R", out, sampler="tpe", trials=0)
    assert not out.exists()


def test_without_optuna_the_remedy_is_named(arrays, out, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"optuna.*pip install 'adagc\[bench\]'"):
        tune(arrays, "LL-R", out)


# What people see


def render(study, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(study.table())
    return console.file.getvalue()


def test_table_and_sentence_say_what_was_found():
    trials = [
        Trial({"final": 0.05}, "finished", {0: 0.30, 1: 0.32}, 61.4, 20),
        Trial({"final": 0.1}, "finished", {0: 0.34, 1: 0.36}, 60.0, 20),
        Trial({"final": 0.2}, "failed", {0: 0.33}, 30.0, 10, "no more [/] room"),
        Trial({"final": 0.3}, "pruned", {}, 9.0, 4),
    ]
    clean = [Hindsight(0.52, None), Hindsight(0.50, None), None, None]
    study = study_of(trials, clean, seeds=(0, 1))
    lines = [line.split() for line in render(study).splitlines() if "0." in line]
    assert lines[0] == ["0.1", "35.00", "34.00", "36.00", "50.00", "60", "chosen"]
    assert lines[1] == ["0.05", "31.00", "30.00", "32.00", "52.00", "61"]
    assert lines[2] == ["0.2", "–", "33.00", "–", "–", "30", "failed"]
    assert lines[3] == ["0.3", "–", "–", "–", "–", "9", "pruned", "at", "4"]
    assert "final=0.2: no more [/] room" in render(study)
    assert "hindsight" in render(study)
    text = study.sentence()
    assert "LL-R on tiny: final=0.1 is the best of 4 trials" in text
    assert "by noisy mAP, 35.00. 1 of 2 finished trials are within 0.5 of it" in text
    assert "median is 2.00 below" in text
    assert "costs 2.00 clean test mAP." in text
    assert "matters most" not in text  # there is but one option
    facts = json.loads(json.dumps(study.to_dict(), allow_nan=False))
    assert facts["best"]["options"] == {"final": 0.1}
    assert facts["trials"][0]["noisy"] == {"0": 0.30, "1": 0.32}
    assert facts["trials"][0]["hindsight"] == {"test": 0.52, "validation": None}
    assert facts["correlation_in_hindsight"]["lost"] == pytest.approx(0.02)
    block = {"title": "LL-R", "tuned_on": "noisy", "final": 0.1}
    assert yaml.safe_load(study.to_yaml()) == {"method": block}

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from adagc.bench.results import Results
from adagc.compare import recommendation
from adagc.training.views import VIEWS
from fake_results import from_numbers, from_predictions, with_told

# The runs here have a trained network and, unless a test says so, no average.
recommend = partial(recommendation.recommend, view=VIEWS["network-last"])
IMAGES, CLASSES = 150, 4
BASIS = "trained networks after the last epoch; 95 % interval over 3 seeds and 150 test images"


@pytest.fixture(scope="module")
def truth():
    return np.random.default_rng(0).random((IMAGES, CLASSES)) < 0.4


def make(folder, truth, quality, *, seeds=3, noise=0.02, **options):
    """Rows whose predictions see the truth as clearly as `quality` says; noise differs by seed."""
    shared = np.random.default_rng(1).normal(size=truth.shape)
    rows = {}
    for i, (label, clear) in enumerate(quality.items()):
        rows[label] = {
            seed: (clear * truth + shared + noise * _normal(i, seed, truth.shape)).astype(
                np.float32
            )
            for seed in (range(seeds) if isinstance(seeds, int) else seeds[label])
        }
    return from_predictions(folder, truth, rows, **options)


def _normal(*key):
    *numbers, shape = key
    return np.random.default_rng(numbers).normal(size=shape)


def means_of(results):
    """mAP of every row as its runs wrote it down."""
    return {
        label: np.mean([run.scores("network", "last").mean_average_precision for run in runs])
        for label in results.labels
        if (runs := results.of(label))
    }


def sentences(text):
    return [one for one in re.split(r"(?<=\.) (?=[A-Z0-9])", text) if one]


def test_a_clear_leader_is_recommended_with_its_lead(tmp_path, truth):
    results = make(tmp_path, truth, {"AN": 0.2, "AdaGC": 2.0, "LL-R": 1.0})
    found = recommend(results, resamples=200)
    assert (found.leader, found.runner_up) == ("AdaGC", "LL-R")
    means = {
        label: np.mean(
            [r.scores("network", "last").mean_average_precision for r in results.of(label)]
        )
        for label in results.labels
    }
    assert found.score == pytest.approx(means["AdaGC"])
    assert found.lead.mean == pytest.approx(means["AdaGC"] - means["LL-R"], abs=1e-6)
    assert found.lead.is_clear
    assert found.recommended == "AdaGC"
    assert found.lead.mean == pytest.approx((found.lead.low + found.lead.high) / 2)
    lead, half = found.lead.mean * 100, found.lead.half * 100
    assert found.sentence.startswith(
        f"Use AdaGC: it leads by {lead:.1f} ± {half:.1f} mAP over LL-R"
        f" ({BASIS}, corrected for comparing 3 methods)."
    )
    assert len(sentences(found.sentence)) == 2


def test_two_that_cannot_be_told_apart(tmp_path, truth):
    quality = {"AdaGC": 1.0, "LL-R": 1.0, "WAN": 1.0, "AN": 0.1}
    found = recommend(make(tmp_path, truth, quality, noise=0.6), resamples=200)
    assert not found.lead.is_clear
    assert found.lead.low <= 0 <= found.lead.high
    assert {found.leader, *found.level} == {"AdaGC", "LL-R", "WAN"}
    assert f"{found.leader} has the highest mAP" in found.sentence
    assert f"cannot be told apart from {found.runner_up} on this data" in found.sentence
    assert ", nor from " in found.sentence
    assert "leads" not in found.sentence
    assert found.recommended == ""


def test_what_would_do_at_a_lower_price(tmp_path, truth):
    quality = {"LL-R": 1.02, "WAN": 1.0, "AdaGC": 1.01, "AN": 0.1}
    seconds = {"LL-R": 100.0, "WAN": 60.0, "AdaGC": 80.0, "AN": 10.0}
    results = make(tmp_path, truth, quality, noise=0.001, seconds=seconds)
    found = recommend(results, resamples=100)
    assert (found.leader, found.cheapest, found.cost) == ("LL-R", "WAN", 0.6)
    assert 0 < found.gap.mean <= 0.01
    gap, half = found.gap.mean * 100, found.gap.half * 100
    assert found.gap.is_clear
    assert (
        f"WAN takes 60 % of its time and scores {gap:.1f} ± {half:.1f} mAP less." in found.sentence
    )


def test_cost_is_cpu_time_where_all_runs_know_it(tmp_path, truth):
    """The clock says the opposite, because the machine was busy."""
    results = make(
        tmp_path,
        truth,
        {"LL-R": 1.02, "WAN": 1.0},
        noise=0.001,
        seconds={"LL-R": 50.0, "WAN": 90.0},
    )
    cpu = {"LL-R": 40.0, "WAN": 10.0}
    timed = replace(
        results, finished=tuple(replace(r, cpu_seconds=cpu[r.label]) for r in results.finished)
    )
    found = recommend(timed, resamples=50)
    assert (found.leader, found.cheapest, found.cost, found.clock) == (
        "LL-R", "WAN", 0.25, "CPU time",
    )  # fmt: skip
    assert "WAN takes 25 % of its CPU time" in found.sentence
    # One old run that does not know it, and the clock decides for all.
    old = replace(timed, finished=(*timed.finished[:-1], results.finished[-1]))
    assert recommend(old, resamples=50).clock == "time"
    assert "No other method is clearly cheaper to train." in recommend(old, resamples=50).sentence


def test_nothing_cheaper_is_said_too(tmp_path, truth):
    quality = {"AdaGC": 2.0, "AN": 0.1}
    cheap = make(tmp_path / "1", truth, quality, seconds={"AdaGC": 100.0, "AN": 10.0})
    text = recommend(cheap, resamples=50).sentence
    assert "No clearly cheaper method comes within 1.0 mAP of it." in text
    dear = make(tmp_path / "2", truth, quality, seconds={"AdaGC": 10.0, "AN": 10.2})
    assert "No other method is clearly cheaper to train." in recommend(dear, resamples=50).sentence


def test_level_but_not_near_is_worded_so(tmp_path, truth):
    few = truth[:20]
    results = make(
        tmp_path, few, {"AdaGC": 1.0, "AN": 0.9}, noise=1.0, seconds={"AdaGC": 100.0, "AN": 50.0}
    )
    found = recommend(results, resamples=200)
    assert found.gap.mean > 0.01
    assert not found.gap.is_clear
    assert found.sentence.endswith("3 seeds and 20 test images). AN takes 50 % of its time.")
    three = {"AdaGC": 1.5, "LL-R": 1.45, "AN": 1.2}
    seconds = {"AdaGC": 100.0, "LL-R": 100.0, "AN": 50.0}
    text = recommend(
        make(tmp_path / "three", few, three, noise=0.3, seconds=seconds), resamples=200
    ).sentence
    assert re.search(
        r"AN takes 50 % of its time and cannot be told apart from it either \(difference \d", text
    )


def test_more_information_is_a_condition_not_a_recommendation(tmp_path, truth):
    quality = {"GT w/ BCE": 5.0, "Dist-PU": 3.0, "EPR": 2.0, "AdaGC": 1.0, "AN": 0.1}
    found = recommend(make(tmp_path / "1", truth, quality), resamples=100)
    assert (found.leader, found.runner_up, found.informed) == ("AdaGC", "AN", "Dist-PU")
    assert found.advantage.is_clear
    third = sentences(found.sentence)[2]
    assert third.startswith("Dist-PU, which is told the true label frequencies")
    assert re.search(r"per image, scores \d+\.\d ± \d+\.\d more\.$", third)
    assert "GT w/ BCE" not in found.sentence
    # One that does not beat the candidates is not worth a word.
    worse = recommend(
        make(tmp_path / "2", truth, {**quality, "Dist-PU": 0.5, "EPR": 0.2}), resamples=50
    )
    assert (worse.informed, worse.advantage) == ("", None)
    assert "Dist-PU" not in worse.sentence
    # Nor is a method recommended that needs nothing, but was told by an option.
    results = make(tmp_path / "4", truth, {"LL-R": 3.0, "AdaGC": 1.0, "AN": 0.1})
    assert recommend(results, resamples=50).leader == "LL-R"
    told = recommend(with_told(results, "LL-R", "final"), resamples=50)
    assert (told.leader, told.runner_up, told.informed) == ("AdaGC", "AN", "LL-R")
    assert "LL-R, which is told the true label frequencies" in told.sentence
    level = {"Dist-PU": 1.0, "AdaGC": 1.0, "AN": 0.1}
    close = recommend(make(tmp_path / "3", truth, level, noise=0.5), resamples=100)
    assert not close.advantage.is_clear
    assert "per image, is not clearly better (0.7 ± " in close.sentence


def test_nothing_is_recommended_from_one_seed(tmp_path, truth):
    quality = {"AdaGC": 2.0, "AN": 0.1, "EPR": 3.0}
    found = recommend(make(tmp_path, truth, quality, seeds=1), resamples=50)
    assert found.lead.is_clear  # as far as images go
    assert found.recommended == ""
    assert re.fullmatch(
        r"AdaGC has the highest mAP, \d+\.\d, \d+\.\d ± \d+\.\d above AN with one seed (.*)\."
        r" Nothing is recommended from one seed, because another one may turn the order round: run"
        r" 3 or more \(such as --seeds 0 1 2\)\.",
        found.sentence,
    )
    assert f"the 95 % interval covers the choice of the {IMAGES} test images only" in found.sentence


@pytest.mark.parametrize(
    ("seeds", "common"), [((0, 1, 2), "only one seed"), ((1, 2), "no seed")], ids=["one", "none"]
)
def test_nor_if_only_the_others_have_more_seeds(tmp_path, truth, seeds, common):
    """An interrupted bench: the leader has run once, and the seeds of others say how steady."""
    own = {"AdaGC": [0], "AN": [0, 1, 2], "WAN": seeds}
    quality = {"AdaGC": 2.0, "AN": 0.2, "WAN": 0.5}
    found = recommend(make(tmp_path, truth, quality, seeds=own), resamples=100)
    assert (found.leader, found.runner_up, found.level) == ("AdaGC", "WAN", ())
    assert found.recommended == ""
    assert re.match(
        r"AdaGC has the highest mAP, \d+\.\d, \d+\.\d ± \d+\.\d above WAN, but they have"
        rf" {common} in common \(trained networks after the last epoch; 95 % interval over test"
        r" images and the seeds of other methods\)\. Nothing is recommended from one seed",
        found.sentence,
    )
    near = recommend(
        make(tmp_path / "near", truth, {**quality, "AdaGC": 0.51}, seeds=own, noise=0.4),
        resamples=100,
    )
    assert "0 seed" not in near.sentence
    assert ("seeds of others" if common == "no seed" else "1 seed") in near.sentence


def test_one_unsteady_method_stands_against_a_recommendation(tmp_path):
    """LL-R is next and clearly behind; WAN is further behind, but may be as good."""
    truth = np.random.default_rng(3).random((400, CLASSES)) < 0.4
    shared = np.random.default_rng(1).normal(size=truth.shape)
    help_ = {
        "AdaGC": [2.0] * 5, "LL-R": [1.3] * 5, "AN": [0.2] * 5, "EM": [0.2] * 5,
        "ASL": [0.2] * 5, "GR": [0.2] * 5, "WAN": [0.6, 2.3, 0.7, 2.3, 0.8],
    }  # fmt: skip
    rows = {
        label: {
            seed: (clear * truth + shared + 0.01 * _normal(i, seed, truth.shape)).astype(np.float32)
            for seed, clear in enumerate(own)
        }
        for i, (label, own) in enumerate(help_.items())
    }
    results = from_predictions(tmp_path, truth, rows)
    means = means_of(results)
    assert means["AdaGC"] > means["LL-R"] > means["WAN"]
    found = recommend(results, resamples=100)
    assert found.leader == "AdaGC"
    assert found.level == ("WAN",)
    assert (found.runner_up, found.recommended) == ("WAN", "")
    assert "AdaGC has the highest mAP" in found.sentence
    assert "cannot be told apart from WAN on this data" in found.sentence
    assert "Use" not in found.sentence


def test_missing_and_failed_runs_are_a_clause_at_the_end(tmp_path, truth):
    results = make(
        tmp_path,
        truth,
        {"AdaGC": 2.0, "AN": 0.1, "EPR": 3.0},
        seeds={"AdaGC": [0, 1], "AN": [0, 1, 2], "EPR": [0, 1, 2]},
        planned=4,
        failed={"AdaGC": ["seed 2: boom"]},
    )
    found = recommend(results, resamples=50)
    assert (found.failed, found.unfinished, found.planned) == (1, 3, 12)
    assert found.lead.seeds == 2
    assert found.sentence.endswith(
        " 1 of 12 runs failed and 3 are not finished, so this may change."
    )
    assert len(sentences(found.sentence)) == 4


def test_a_lucky_seed_is_not_a_lead(tmp_path, truth):
    """WAN's mean is the highest because it has only the seed in which everything went well."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(3, *truth.shape))

    def scores(clear, seed):
        return (clear * truth + noise[seed]).astype(np.float32)

    rows = {
        "AN": {0: scores(4.0, 0), 1: scores(0.2, 1), 2: scores(0.2, 2)},
        "WAN": {0: scores(2.0, 0)},
    }
    results = from_predictions(tmp_path, truth, rows, planned=3)
    means = {
        label: np.mean(
            [r.scores("network", "last").mean_average_precision for r in results.of(label)]
        )
        for label in rows
    }
    assert means["WAN"] > means["AN"]
    found = recommend(results, resamples=100)
    assert (found.leader, found.lead.seeds, found.highest) == ("AN", 1, False)
    assert found.sentence.startswith("AN is ahead where methods share seeds (its mAP is ")
    assert "Use" not in found.sentence  # one common seed is one seed


def test_without_a_shared_seed_there_is_no_verdict(tmp_path, truth):
    results = make(tmp_path, truth, {"AN": 1.0, "WAN": 0.1}, seeds={"AN": [0], "WAN": [1]})
    text = recommend(results, resamples=20).sentence
    assert text.startswith(
        "There is no recommendation yet: no two methods have a run with the same seed"
    )


def test_averages_stand_beside_averages(tmp_path, truth):
    """A teacher is an average; rows without one are named, not mixed in."""
    one = make(tmp_path / "a", truth, {"AN": 0.2, "WAN": 0.5}, name="averaged")
    two = make(tmp_path / "b", truth, {"AdaGC": 2.0}, name="teacher")
    three = make(tmp_path / "c", truth, {"LL-R": 3.0})
    both = Results(
        "tiny", one.jobs + two.jobs + three.jobs, one.finished + two.finished + three.finished
    )
    found = recommendation.recommend(both, resamples=50)  # the default view
    assert (found.view.name, found.leader, found.runner_up) == ("averaged-last", "AdaGC", "WAN")
    assert "(averaged networks after the last epoch; 95 %" in found.sentence
    assert found.without == ("LL-R",)
    assert found.sentence.endswith(" LL-R has no averaged network and cannot be compared here.")
    assert "of the methods that need neither" in recommend(both).sentence
    assert recommend(two).sentence == (
        "There is no recommendation yet: no run has test scores of its trained network: choose"
        " another view with --judge."
    )


def test_gains_over_the_simplest_baselines(tmp_path, truth):
    quality = {"AN": 0.2, "AN-LS": 0.3, "WAN": 0.5, "EPR": 0.6, "AdaGC": 1.0, "LL-R": 2.0}
    averaged = make(tmp_path, truth, quality, name="averaged")
    found = recommendation.recommend(averaged, resamples=100)
    # Those that need nothing and have nothing to tune, for the leader and for the proposed method.
    assert {label: list(own) for label, own in found.gains.items()} == {
        "LL-R": ["AN", "WAN"], "AdaGC": ["AN", "WAN"],
    }  # fmt: skip
    scores = {label: [] for label in quality}
    for run in averaged.finished:
        scores[run.label].append(run.scores("averaged", "last").mean_average_precision)
    for label, own in found.gains.items():
        for other, gain in own.items():
            wanted = np.mean(scores[label]) - np.mean(scores[other])
            assert gain.mean == pytest.approx(wanted, abs=1e-6)
    own = found.gains["AdaGC"]
    said = {other: f"+{gain.mean * 100:.1f} ± {gain.half * 100:.1f}" for other, gain in own.items()}
    assert found.notes[1] == (
        f"mAP of AdaGC against averaged AN {said['AN']}, against averaged WAN {said['WAN']} (95 %"
        " intervals)."
    )
    trained = recommend(make(tmp_path / "t", truth, quality), resamples=100)
    assert trained.notes[1].startswith("mAP of AdaGC against AN +")


def test_what_is_missing_is_said():
    assert recommend(from_numbers({"AN": [], "WAN": []}, planned=2)).sentence == (
        "There is no recommendation yet: no run is finished; 4 of 4 runs are not finished."
    )
    assert recommend(from_numbers({"GT w/ BCE": [9.0], "EPR": [8.0], "AN": [7.0]})).sentence == (
        "There is no recommendation yet: of the methods that need neither clean labels nor true"
        " label frequencies, only AN is finished."
    )
    assert "frequencies, none is finished" in recommend(from_numbers({"EPR": [1.0]})).sentence


def test_without_test_labels():
    results = from_numbers({"AN": [1.0], "WAN": [2.0]})
    blind = replace(results, finished=tuple(replace(r, networks={}) for r in results.finished))
    assert recommend(blind).sentence == (
        "There is no recommendation yet: there are no clean labels of test images to compare the"
        " methods with."
    )


def test_runs_that_cannot_be_compared_leave_the_tables_alone(tmp_path, truth):
    one = make(tmp_path / "1", truth, {"AN": 1.0}, seeds=1)
    two = make(tmp_path / "2", ~truth, {"WAN": 1.0}, seeds=1)
    both = Results("tiny", one.jobs + two.jobs, one.finished + two.finished)
    assert re.search(
        r"no recommendation yet: .*AN-0 and .*WAN-0 were not tested", recommend(both).sentence
    )


def test_the_numbers_are_ready_for_json(tmp_path, truth):
    found = recommend(make(tmp_path, truth, {"AdaGC": 2.0, "AN": 0.1}), resamples=50)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["lead"]["mean"] == found.lead.mean
    assert plain["sentence"] == found.sentence


def test_a_row_that_loses_where_it_can_be_compared_is_not_recommended(tmp_path, truth):
    """B is ahead of A, C far ahead of B, and the means say otherwise because of missing runs."""
    helps = {"AN": {0: 2.0}, "WAN": {0: 4.0, 1: 0.2, 2: 0.2}, "LL-R": {1: 1.0, 2: 1.0}}
    noise = np.random.default_rng(1).normal(size=truth.shape)
    rows = {
        label: {seed: (help_ * truth + noise).astype(np.float32) for seed, help_ in own.items()}
        for label, own in helps.items()
    }
    results = from_predictions(tmp_path, truth, rows)
    assert max(means_of(results), key=means_of(results).__getitem__) == "AN"
    assert recommend(results, resamples=100).leader == "LL-R"


def test_a_circle_has_no_leader(tmp_path, truth):
    seeds = {"AN": (0, 1), "WAN": (1, 2), "LL-R": (2, 0)}
    noise = np.random.default_rng(1).normal(size=truth.shape)
    # Each is better than the next on the one seed that they share.
    rows = {
        label: {
            seed: ((2.0 if place else 0.5) * truth + noise).astype(np.float32)
            for place, seed in enumerate(own)
        }
        for label, own in seeds.items()
    }
    found = recommend(from_predictions(tmp_path, truth, rows), resamples=100)
    assert found.recommended == ""
    assert "cannot be told apart" in found.sentence

"""Measures of labels: annotators with known behaviour, whose numbers must come back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from adagc.annotate.agreement import cohen_interval, cohen_kappa, fleiss_interval, fleiss_kappa
from adagc.annotate.events import Event
from adagc.annotate.measures import BREAK, measure
from adagc.annotate.visits import visits
from adagc.errors import DataError
from adagc.labels import LabelTable
from adagc.labels.drawing import chi_square_tail, distance_from_random, dominance, liking
from adagc.metrics.shares import wilson
from simulated_annotators import CLASSES, annotate, by_area, by_weights, mixed, scenes

RANDOM = by_weights([1.0] * len(CLASSES))


def table(truth: np.ndarray) -> LabelTable:
    return LabelTable(
        tuple(f"i{row:05d}" for row in range(len(truth))), CLASSES, truth.astype(np.int8)
    )


# -- golden values -------------------------------------------------------------------------------


def test_cohens_kappa_by_hand():
    # 20 times both yes, 15 both no, of 50: p_o = .7, p_e = .5 * .6 + .5 * .4 = .5
    assert cohen_kappa(np.array([[20, 5], [10, 15]])) == pytest.approx(0.4)
    assert math.isnan(cohen_kappa(np.array([[7, 0], [0, 0]])))
    assert cohen_kappa(np.array([[0, 5], [5, 0]])) == pytest.approx(-1)


def test_fleiss_kappa_by_hand():
    # the worked example of ten subjects, fourteen raters and five categories (kappa .210)
    counts = np.array(
        [
            [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
            [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
        ]
    )  # fmt: skip
    assert fleiss_kappa(counts) == pytest.approx(0.20993, abs=1e-5)
    assert fleiss_interval(counts)[0] == pytest.approx(fleiss_kappa(counts))
    # two people who disagree on one of four: P = 3/4, P_e = (5/8)² + (3/8)² = 17/32
    few = np.array([[2, 0], [2, 0], [1, 1], [0, 2]])
    assert fleiss_kappa(few) == pytest.approx((3 / 4 - 17 / 32) / (1 - 17 / 32))
    # an image that one person saw tells nothing
    assert fleiss_kappa(np.vstack([few, [[1, 0]]])) == pytest.approx(fleiss_kappa(few))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=60))
@settings(max_examples=40, deadline=None)
def test_cohens_kappa_is_that_of_scikit_learn(pairs):
    first, second = (np.array(one) for one in zip(*pairs, strict=True))
    counts = np.zeros((4, 4), dtype=np.int64)
    np.add.at(counts, (first, second), 1)
    ours = cohen_kappa(counts)
    again = cohen_interval(first, second, 4)[0]
    if math.isnan(ours):
        assert math.isnan(again)
        return
    assert ours == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
    assert again == pytest.approx(ours, abs=1e-9)


def test_wilson_by_hand():
    # z² = 3.8415: middle (.8 + 3.8415 / 20) / 1.38415, as in tables of the interval
    assert wilson(8, 10).low == pytest.approx(0.4902, abs=1e-4)
    assert wilson(8, 10).high == pytest.approx(0.9433, abs=1e-4)
    assert wilson(0, 10).low == 0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).high == 1
    assert math.isnan(wilson(0, 0).value)


@pytest.mark.parametrize(
    ("value", "freedom", "expected"),
    [(3.841459, 1, 0.05), (5.991465, 2, 0.05), (7.814728, 3, 0.05), (16.918978, 9, 0.05),
     (23.209251, 10, 0.01), (0.0, 3, 1.0), (1000.0, 3, 0.0)],
)  # fmt: skip
def test_tail_of_chi_square_by_tables(value, freedom, expected):
    assert chi_square_tail(value, freedom) == pytest.approx(expected, abs=1e-6)


# -- behaviour comes back ------------------------------------------------------------------------


def test_random_labels_are_called_random():
    truth, areas = scenes(1500)
    found = measure(annotate(truth, RANDOM), CLASSES, table(truth), areas=areas).truth
    assert found.dominance.low <= 0.02
    assert found.dominance.high < 0.08
    assert found.area_power.low <= 0 <= found.area_power.high
    assert found.area_power.high - found.area_power.low < 0.25
    # each interval of 95 %
    assert ((found.liking.low < 1) & (found.liking.high > 1)).sum() >= 6


def test_random_labels_are_rarely_called_something_else():
    truth, _ = scenes(150, seed=21)
    rejected = distant = 0
    for seed in range(50):
        generator = np.random.default_rng(seed)
        chosen = np.array([generator.choice(np.flatnonzero(row)) for row in truth])
        rejected += liking(chosen, truth).random < 0.05
        value, by_chance = distance_from_random(chosen, truth, draws=200, seed=seed)
        distant += value.value > by_chance
        assert value.low <= value.value <= value.high
    # 2.5 of 50 are expected; more than 7 have a chance of 0.3 %
    assert rejected <= 7
    assert distant <= 7


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_share_of_dominant_labels_comes_back(share):
    truth, areas = scenes(1500, seed=1)
    events = annotate(truth, mixed(areas, share), seed=2)
    found = measure(events, CLASSES, table(truth), areas=areas).truth
    assert found.dominance.low < share < found.dominance.high
    assert found.dominance.value == pytest.approx(share, abs=0.06)


def test_dominant_labels_are_called_dominant():
    truth, areas = scenes(400, seed=1)
    found = measure(annotate(truth, mixed(areas, 1.0)), CLASSES, table(truth), areas=areas).truth
    assert found.dominance.value == 1
    assert found.dominance.low > 0.97
    assert found.area_power.value > 10


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_power_of_areas_comes_back(power):
    truth, areas = scenes(1500, seed=3)
    events = annotate(truth, by_area(areas, power), seed=4)
    found = measure(events, CLASSES, table(truth), areas=areas).truth.area_power
    assert found.low < power < found.high
    assert found.value == pytest.approx(power, abs=0.2)


def test_four_candidates_make_dominant_choices_more_random():
    truth, areas = scenes(1500, seed=5)
    events = annotate(truth, mixed(areas, 1.0), candidates=4, seed=6)
    found = measure(events, CLASSES, table(truth), areas=areas).truth
    assert found.dominance_offered.value == 1  # what people do
    assert found.dominance.high < 0.8  # what their labels are like


def test_intervals_of_the_share_cover_it_as_often_as_they_say():
    truth, areas = scenes(150, seed=7)
    choose = mixed(areas, 0.4)
    hits = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        chosen = np.array([choose(generator, row, there) for row, there in enumerate(truth)])
        found = dominance(chosen, truth, areas)
        hits += found.low <= 0.4 <= found.high
    assert 52 <= hits <= 60  # 57 are expected; fewer than 52 have a chance of 0.8 %


def test_liking_of_classes_comes_back():
    weights = np.array([0.5, 1.0, 2.0, 1.0, 0.7, 1.4, 0.4, 1.0])
    truth, _ = scenes(3000, seed=8)
    found = measure(annotate(truth, by_weights(weights), seed=9), CLASSES, table(truth)).truth
    wanted = weights / np.exp(np.log(weights).mean())
    assert np.abs(np.log(found.liking.weights / wanted)).max() < 0.25
    inside = (found.liking.low < wanted) & (wanted < found.liking.high)
    assert inside.sum() >= 7
    assert found.liking.random < 1e-6
    assert found.distance.low > found.distance_by_chance


def test_liking_maximises_its_likelihood():
    generator = np.random.default_rng(0)
    possible = generator.random((80, 4)) < 0.6
    possible[:, 0] |= ~possible.any(axis=1)
    chosen = np.array([generator.choice(np.flatnonzero(row)) for row in possible])

    def score(logs):
        inside = np.where(possible, np.exp(logs), 0).sum(axis=1)
        return logs[chosen].sum() - np.log(inside).sum() - (logs @ logs) / 2

    best = np.log(liking(chosen, possible).weights)
    for c in range(4):
        for step in (-0.05, 0.05):
            moved = best.copy()
            moved[c] += step
            assert score(moved) < score(best)


def test_a_class_that_was_never_possible_has_the_weight_of_all():
    possible = np.array([[True, True, False]] * 30)
    found = liking(np.array([0] * 20 + [1] * 10), possible)
    assert found.weights[2] == 1
    assert found.possible.tolist() == [30, 30, 0]
    assert found.weights[0] > found.weights[1]


def test_distance_from_random_of_one_class_only():
    possible = np.ones((100, 2), dtype=bool)
    value, chance = distance_from_random(np.zeros(100, dtype=np.int64), possible)
    assert value.value == pytest.approx(0.5)
    assert chance < 0.12


def test_offers_and_picks_are_those_that_happened():
    truth, _ = scenes(300, seed=10)
    events = annotate(truth, RANDOM, candidates=4, seed=11)
    found = measure(events, CLASSES)
    for c, rate in enumerate(found.rates):
        offered = {e.image for e in events if CLASSES[c] in e.candidates}
        picked = {e.image for e in events if CLASSES[c] in e.present}
        assert rate.offered == len(offered)
        assert rate.picked.value == pytest.approx(len(picked) / len(offered))
        assert rate.picked.low < rate.picked.value < rate.picked.high
    assert found.answers == 300
    refreshed = {e.image for e in events if e.kind == "refresh"}
    assert found.refreshed.value == pytest.approx(len(refreshed) / 300)
    assert found.truth is None


def test_wrong_labels_are_counted():
    truth, _ = scenes(800, seed=12)
    found = measure(annotate(truth, RANDOM, wrong=0.2, seed=13), CLASSES, table(truth)).truth
    assert found.wrong.low < 0.2 < found.wrong.high
    assert found.wrong.count == 800


@pytest.mark.parametrize(("bias", "found_it"), [(0.0, False), (0.5, True)])
def test_bias_towards_the_first_key(bias, found_it):
    truth, _ = scenes(1200, seed=14)
    keys = measure(annotate(truth, RANDOM, candidates=4, first_key=bias, seed=15), CLASSES).keys
    # the last screens after refreshes may have fewer candidates and are left out
    assert keys.candidates == 4
    assert (keys.p_value < 1e-4) == found_it
    assert (keys.first.low > 0) == found_it
    if not found_it:
        assert keys.p_value > 0.01
        assert keys.effect < 0.06


def test_speed_leaves_breaks_out():
    truth, _ = scenes(200, seed=16)
    events = annotate(truth, RANDOM, seconds=5.4, seed=17)
    long = next(i for i, e in enumerate(events) if e.kind == "choose")
    events[long] = replace(events[long], seconds=BREAK * 10)
    found = measure(events, CLASSES).speed
    assert found.breaks == 1
    assert found.median == pytest.approx(5.4, rel=0.1)
    assert found.per_hour == pytest.approx(3600 / (5.4 * math.exp(0.08)), rel=0.1)
    assert found.quartiles[0] < found.median < found.quartiles[1] < found.slowest


def test_agreement_of_people_who_agree_in_part():
    truth, _ = scenes(300, seed=18)
    first = annotate(truth, RANDOM, seed=19)
    same = annotate(truth, RANDOM, seed=19, name="bob", number=10_000)
    other = annotate(truth, RANDOM, seed=20, name="cy", number=20_000)
    found = measure([*first, *same, *other], CLASSES)
    kappas = {pair.names: pair.kappa for pair in found.pairs}
    assert kappas["ada", "bob"].value == 1
    answers = [[e.present[0] for e in one if e.kind == "choose"] for one in (first, other)]
    assert kappas["ada", "cy"].value == pytest.approx(cohen_kappa_score(*answers))
    assert kappas["ada", "cy"].low < kappas["ada", "cy"].value < kappas["ada", "cy"].high
    assert kappas["ada", "cy"].value < found.fleiss.value < 1
    assert found.fleiss.count == 300
    assert [person.name for person in found.people] == ["ada", "bob", "cy"]


def test_taken_back_answers_do_not_count():
    shown = ("water", "trees")
    events = [
        Event(1, 0.0, "ada", "a", "shown", candidates=shown),
        Event(2, 1.0, "ada", "a", "choose", shown, ("water",), key=0, seconds=1.0),
        Event(3, 2.0, "ada", "a", "undo", undoes=2),
        Event(4, 3.0, "ada", "a", "choose", shown, ("trees",), key=1, seconds=3.0),
        Event(5, 4.0, "ada", "b", "shown", candidates=("grass", "road")),
        Event(6, 5.0, "ada", "c", "skip", candidates=("grass", "road"), seconds=9.0),
        Event(7, 6.0, "ada", "d", "choose", ("grass",), ("grass",), seconds=2.0),
        Event(8, 6.5, "ada", "d", "absent", ("grass",), absent=("road",), seconds=2.5),
    ]
    seen = visits(events, CLASSES)
    assert seen.images == ("a", "c", "d")
    assert [CLASSES[c] if c >= 0 else None for c in seen.chosen] == ["trees", None, "grass"]
    assert seen.key.tolist() == [1, -1, -1]
    assert seen.skipped.tolist() == [False, True, False]
    assert seen.absent[2, CLASSES.index("road")]
    found = measure(events, CLASSES)
    assert (found.answers, found.labels, found.skipped) == (3, 2, 1)
    rate = {one.name: one for one in found.rates}
    assert rate["water"].picked.value == 0
    assert rate["road"].offered == 0  # only on images that were skipped, or not answered


def test_nothing_at_all_is_measured_too():
    found = measure([], CLASSES)
    assert found.answers == 0
    assert found.keys is None
    assert found.speed is None
    assert found.to_dict()["rates"][0]["picked"]["value"] is None


def test_classes_that_do_not_fit_are_named():
    events = annotate(scenes(3)[0], RANDOM)
    with pytest.raises(DataError, match="which is not among the classes"):
        measure(events, ("trees", "waters"))
    with pytest.raises(DataError, match="same classes"):
        measure(events, CLASSES, LabelTable(("a",), ("x",), np.ones((1, 1), np.int8)))

"""Criteria that choose by observed labels alone, against slow twins and by what they must do."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from adagc.errors import DataError
from adagc.metrics import average_precision, score
from adagc.metrics.noisy import (
    CRITERIA,
    auc,
    criteria,
    fit_exponent,
    likelihood,
    noisy_map,
    rank,
    tempered,
)
from reference import slow_noisy


@st.composite
def tables(draw, *, single=False):
    """Observed labels of every kind and probabilities with ties, at least one label."""
    images, classes = draw(st.integers(1, 9)), draw(st.integers(2, 5))
    levels = st.sampled_from([0.0, 1e-6, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0])
    probabilities = [[draw(levels) for _ in range(classes)] for _ in range(images)]
    if single:
        observed = np.zeros((images, classes), np.int8)
        for row in observed:
            row[draw(st.integers(0, classes - 1))] = 1
    else:
        entry = st.sampled_from([-1, 0, 0, 1])
        observed = np.array([[draw(entry) for _ in range(classes)] for _ in range(images)], np.int8)
        observed[draw(st.integers(0, images - 1)), draw(st.integers(0, classes - 1))] = 1
    return observed, np.array(probabilities)


@given(tables())
@settings(max_examples=60, deadline=None)  # the slow twin is slow
def test_every_criterion_is_its_slow_twin(table):
    observed, probabilities = table
    values = criteria(observed, probabilities)
    told = observed.tolist(), probabilities.tolist()
    assert values["likelihood"] == pytest.approx(slow_noisy.likelihood(*told), abs=1e-9)
    assert values["rank"] == pytest.approx(slow_noisy.rank(*told), abs=1e-12)
    assert values["auc"] == pytest.approx(slow_noisy.auc(*told), abs=1e-12, nan_ok=True)
    assert values["tempered"] == pytest.approx(slow_noisy.tempered(*told), rel=1e-5, abs=1e-5)
    by_class = average_precision(observed > 0, probabilities)
    assert values["noisy-map"] == pytest.approx(by_class[~np.isnan(by_class)].mean())
    assert set(values) == set(CRITERIA)


@given(tables(single=True))
def test_rank_and_noisy_map_are_those_of_the_metrics(table):
    observed, probabilities = table
    scores = score(observed > 0, probabilities, absent="skip")
    assert rank(observed, probabilities) == pytest.approx(1 - scores.ranking_loss)
    assert noisy_map(observed, probabilities) == scores.mean_average_precision


def test_auc_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    probabilities = np.round(rng.random((80, 4)), 1)
    observed = np.eye(4, dtype=np.int8)[rng.integers(4, size=80)]
    wanted = roc_auc_score(observed, probabilities, average="macro")
    assert auc(observed, probabilities) == pytest.approx(wanted)
    absent = observed - (rng.random(observed.shape) < 0.3) * (observed == 0)
    assert auc(absent, probabilities) == pytest.approx(wanted)  # absent or not known: no label
    never = np.hstack([observed, np.zeros((80, 1), np.int8)])
    assert auc(never, np.hstack([probabilities, probabilities[:, :1]])) == pytest.approx(wanted)


def test_missing_labels_cost_every_network_the_same_auc():
    """What the docstring promises: (1 - r) A + r / 2, whatever the network is."""
    rng = np.random.default_rng(5)
    images = 200_000
    present = rng.random((images, 1)) < 0.4
    observed = present & (rng.random((images, 1)) < 0.25)
    missing = (present & ~observed).sum() / (~observed).sum()
    for strength in (0.0, 0.5, 2.0):
        scores = 1 / (1 + np.exp(-strength * present - rng.normal(size=(images, 1))))
        clean, noisy = auc(present, scores), auc(observed, scores)
        assert noisy == pytest.approx((1 - missing) * clean + missing / 2, abs=0.005)


def test_by_hand():
    observed = [[1, 0, 0], [0, 0, 1]]
    probabilities = [[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]]
    assert auc(observed, probabilities) == 0  # both classes are the wrong way round
    wanted = (math.log(0.5) + math.log(0.1)) / 2
    assert likelihood(observed, probabilities) == pytest.approx(wanted)
    assert rank(observed, probabilities) == pytest.approx((1 + 0) / 2)  # the tie does not count
    # One image in each half. By the smoothed labels of the first one the best exponent makes the
    # odds of its first class (1 + 1/3) : (2/3), so 2^a = 4; the second fits exponent 0.
    assert tempered(observed, probabilities) == pytest.approx(
        (math.log(1 / 3) + math.log(0.01 / (0.64 + 0.02))) / 2
    )


def test_finding_what_was_not_observed_is_not_punished():
    """Two classes are in every image, one of them was observed: finding both is right."""
    rng = np.random.default_rng(3)
    images = 4000
    present = np.zeros((images, 6), bool)
    for row in present:
        row[rng.permutation(6)[:2]] = True
    observed = np.zeros((images, 6), np.int8)
    for row, has in zip(observed, present, strict=True):
        row[rng.choice(np.flatnonzero(has))] = 1
    both = np.where(present, 0.9, 0.01)
    guess = np.where(present & (rng.random(present.shape) < 0.5), 0.9, 0.01)
    assert auc(observed, both) > auc(observed, guess)
    assert tempered(observed, both) > tempered(observed, guess)
    assert likelihood(observed, both) > likelihood(observed, guess)
    assert tempered(observed, both) == pytest.approx(math.log(0.5), abs=0.01)


@given(tables(), st.floats(0.2, 1.0), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_what_does_not_matter(table, factor, seed):
    observed, probabilities = table
    assume((observed > 0).any(axis=1).sum() > 1)  # one image in each half
    probabilities = np.clip(probabilities, 1e-4, 0.9)
    # A common factor of an image's scores is divided out; powers are for the tempered one only.
    scaled = probabilities * factor
    assert likelihood(observed, scaled) == pytest.approx(likelihood(observed, probabilities))
    assert tempered(observed, scaled) == pytest.approx(tempered(observed, probabilities), abs=1e-6)
    squared = probabilities**2
    assert tempered(observed, squared) == pytest.approx(tempered(observed, probabilities), abs=1e-5)
    assert rank(observed, squared) == rank(observed, probabilities)
    # What is absent counts as what is not known, and images without a label do not count.
    unknown = np.maximum(observed, 0)
    more = np.vstack([observed, np.minimum(observed, 0)]), np.vstack([probabilities] * 2)
    for compute in (likelihood, rank):
        assert compute(unknown, probabilities) == compute(observed, probabilities)
        assert compute(*more) == pytest.approx(compute(observed, probabilities))
    assert tempered(*more) == pytest.approx(tempered(observed, probabilities))
    order = np.random.default_rng(seed).permutation(observed.shape[1])
    for compute in (likelihood, rank, tempered):
        permuted = compute(observed[:, order], probabilities[:, order])
        assert permuted == pytest.approx(compute(observed, probabilities), abs=1e-6)


def test_each_image_counts_once_however_many_labels_it_has():
    probabilities = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]
    one, two = [[1, 0, 0], [0, 0, 1]], [[1, 1, 0], [0, 0, 1]]
    assert likelihood(two, probabilities) == pytest.approx(
        ((math.log(0.6) + math.log(0.3)) / 2 + math.log(0.6)) / 2
    )
    assert rank(two, probabilities) == 1  # 0.3 stands below another observed label only
    assert rank(one, probabilities) == 1
    assert rank([[1, 1, 1], [0, 0, 1]], probabilities) == 1  # nothing else could come first


def test_the_exponent_is_the_one_the_labels_were_drawn_with():
    rng = np.random.default_rng(0)
    logs = np.log(rng.dirichlet(np.ones(10), 20_000))
    for exponent in (0.4, 1.0, 3.0):
        weights = np.exp(exponent * logs)
        weights /= weights.sum(axis=1, keepdims=True)
        drawn = (weights.cumsum(axis=1) > rng.random((len(logs), 1))).argmax(axis=1)
        fitted = fit_exponent(np.eye(10)[drawn], logs)
        assert fitted == pytest.approx(exponent, rel=0.03)


def test_the_exponent_stays_finite_and_not_negative():
    logs = np.log([[0.9, 0.1]] * 4)
    first, second = np.eye(2)[[0] * 4], np.eye(2)[[1] * 4]
    assert 1 < fit_exponent(first, logs) < 10  # always first: without smoothing it is infinite
    assert fit_exponent(second, logs) == 0  # always last: the scores are worth nothing
    assert fit_exponent(first, np.zeros((4, 2))) == 0  # nothing to fit: all are alike
    assert fit_exponent(first[:0], logs[:0]) == 1
    tiny = fit_exponent(np.eye(2)[[0] * 50], np.array([[0.0, -1e-9]] * 50))
    assert tiny == pytest.approx(1e3)


def test_extremes_stay_finite():
    observed = np.array([[1, 0], [0, 1], [1, 0]])
    values = criteria(observed, np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]], np.float32))
    assert all(math.isfinite(value) for value in values.values())
    assert values["likelihood"] == pytest.approx((math.log(1e-12) + math.log(0.5)) / 3, rel=1e-6)


def test_without_a_label_nothing_can_be_said():
    values = criteria([[0, -1]], [[0.2, 0.3]])
    assert all(math.isnan(value) for value in values.values())


def test_wrong_tables_are_refused():
    for compute in (likelihood, tempered, rank):
        with pytest.raises(DataError, match="both must be"):
            compute([[1, 0]], [[0.1, 0.2, 0.3]])
        with pytest.raises(DataError, match="finite"):
            compute([[1, 0]], [[0.1, float("nan")]])


def test_it_takes_milliseconds():
    rng = np.random.default_rng(0)
    probabilities = rng.random((5000, 20), np.float32)
    observed = np.eye(20, dtype=np.int8)[rng.integers(20, size=5000)]
    began = time.process_time()
    criteria(observed, probabilities)
    assert time.process_time() - began < 0.5  # 0.02 s where it was written


@pytest.mark.parametrize("name", CRITERIA)
def test_better_scores_are_larger(name):
    rng = np.random.default_rng(1)
    observed = np.eye(6, dtype=np.int8)[rng.integers(6, size=300)]
    noise = rng.random((300, 6))
    weak, strong = (0.05 + 0.4 * noise + share * observed for share in (0.1, 0.4))
    assert CRITERIA[name].compute(observed, strong) > CRITERIA[name].compute(observed, weak)

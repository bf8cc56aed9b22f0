"""Differences between rows and their intervals, against plain loops and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.compare.bootstrap import Resampled
from adagc.compare.comparison import Comparison
from adagc.compare.design import Design
from adagc.compare.intervals import LEVEL, Uncertainty, stand
from reference import slow_comparison

NAMES = "ABCDEFGHIJ"


def resampled(table, noise=None, images=100) -> Resampled:
    """Runs with these values (NaN: no run) and, by method, what resamples of the images add."""
    table = np.asarray(table, float)
    noise = np.zeros((len(table), 50)) if noise is None else np.asarray(noise, float)
    plain = {
        NAMES[i]: {seed: value for seed, value in enumerate(row) if not np.isnan(value)}
        for i, row in enumerate(table)
    }
    drawn = {
        label: {seed: value + noise[NAMES.index(label)] for seed, value in runs.items()}
        for label, runs in plain.items()
    }
    return Resampled(images, plain, drawn)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), methods=st.integers(2, 5), seeds=st.integers(2, 4))
def test_a_complete_table_is_compared_as_by_the_slow_twin(seed, methods, seeds):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(methods, seeds)) + 3 * rng.normal(size=(methods, 1))
    noise = 0.5 * rng.normal(size=(methods, 30))
    found = Comparison(resampled(table, noise), NAMES[:methods])
    means = table.mean(axis=1)
    lead = int(means.argmax())
    assert found.leader == NAMES[lead]
    drawn = (means[:, None] + noise).T
    halves = {
        number: [
            slow_comparison.half_width(table, drawn, lead, j, number, 100) for j in range(methods)
        ]
        for number in (1, 3, 6, 10)
    }
    behind = slow_comparison.steps(means[lead] - means, halves)
    for j, label in enumerate(NAMES[:methods]):
        if j == lead:
            continue
        gap = found.gaps[label]
        assert gap.mean == pytest.approx(means[lead] - means[j], abs=1e-9)
        assert gap.is_clear == behind[j]
        assert gap.half == pytest.approx(halves[gap.comparisons][j], rel=1e-6)
        assert (gap.low + gap.high) / 2 == pytest.approx(gap.mean, abs=1e-9)
        assert (gap.seeds, gap.images, gap.covers_seeds) == (seeds, 100, True)
        plain, back = found.difference(NAMES[lead], label), found.difference(label, NAMES[lead])
        assert plain.half == pytest.approx(halves[1][j], rel=1e-6)
        assert (plain.low, plain.high) == pytest.approx((-back.high, -back.low))


def test_corrections_shrink_from_step_to_step():
    """Three are far behind and put aside; the last two are then compared without a correction."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(5, 3))
    table = noise - noise.mean(axis=1, keepdims=True)  # all means are equal
    design = Design(np.ones((5, 3), bool))
    error = np.sqrt(design.variance(table.ravel())[0, 1])
    # Student's t with 8 degrees of freedom: 2.3 alone, 3.8 as one of ten pairs.
    table = table - error * np.array([[0], [3], [30], [31], [32]])
    found = Comparison(resampled(table), NAMES[:5])
    assert {label: gap.comparisons for label, gap in found.gaps.items()} == {
        "B": 1, "C": 10, "D": 10, "E": 10,
    }  # fmt: skip
    assert all(gap.is_clear for gap in found.gaps.values())
    # Where the others are near, three standard errors are not enough.
    table[2:] = table[0] - 3 * error + noise[2:] - noise[2:].mean(axis=1, keepdims=True)
    close = Comparison(resampled(table), NAMES[:5])
    assert {gap.comparisons for gap in close.gaps.values()} == {10}
    assert not close.gaps["B"].is_clear


def test_a_pair_that_is_less_steady_than_the_others_gets_its_own_variance():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(10, 5))
    table[8:] += [[9, -9, 9, -9, 0], [-9, 9, -9, 9, 0]]
    design = Design(np.ones((10, 5), bool))
    found = design.variance(table.ravel())
    pooled = 2 * slow_comparison.interaction(table) / 5
    own = np.var(table[8] - table[9], ddof=1) / 5
    assert own > pooled
    assert found[8, 9] == pytest.approx(own)
    assert found[0, 1] == pytest.approx(pooled)


def test_many_worlds_at_once_are_as_one_after_the_other():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 4, 4 * 3))
    design = Design(np.ones((4, 3), bool))
    images = rng.random((3, 4, 4, 4))
    images = images + np.swapaxes(images, -1, -2)
    together = stand(
        design.methods(values), Uncertainty(images, design.variance(values), 99, design.degrees)
    )
    for a in range(3):
        for b in range(4):
            errors = Uncertainty(images[a, b], design.variance(values[a, b]), 99, design.degrees)
            alone = stand(design.methods(values[a, b]), errors)
            assert alone.leader == together.leader[a, b]
            np.testing.assert_allclose(alone.halves, together.halves[a, b])
            np.testing.assert_array_equal(alone.clear, together.clear[a, b])


# -- missing runs --------------------------------------------------------------------------------

NO = np.nan


def test_a_missing_run_does_not_make_its_seed_count():
    """B has only the easy seed; where both have runs, A is ahead by 1."""
    found = Comparison(resampled([[9, 5, 5], [8, NO, NO]]), "AB")
    assert found.leader == "A"
    assert found.gaps["B"].mean == pytest.approx(1)
    assert found.gaps["B"].seeds == 1
    assert not found.covers_seeds  # one common seed says nothing about other seeds


def test_methods_are_compared_through_others():
    """C never meets A, but both meet B."""
    found = Comparison(resampled([[5, NO, NO], [7, 2, 2], [NO, 3, 3.2]]), "ABC")
    assert found.leader == "C"
    assert found.gaps["A"].mean == pytest.approx(1.1 + 2)
    assert found.gaps["A"].seeds == 0
    assert found.covers_seeds


def test_a_circle_has_no_clear_leader():
    """A beats B, B beats C and C beats A, each on the one seed that they share."""
    found = Comparison(resampled([[0, 1, NO], [NO, 0, 1], [1, NO, 0]]), "ABC")
    assert not any(gap.is_clear for gap in found.gaps.values())
    assert all(abs(gap.mean) < 1e-9 for gap in found.gaps.values())


def test_rows_without_common_seeds_are_not_compared():
    found = Comparison(resampled([[5, NO], [4, NO], [NO, 9]]), "ABC")
    assert found.candidates == ("A", "B")
    assert found.apart == ("C",)
    assert found.difference("A", "C") is None
    assert found.gains("C", ["A"]) == {}


def test_one_seed_is_judged_by_its_images_alone():
    rng = np.random.default_rng(2)
    noise = np.stack([rng.normal(size=200), np.zeros(200)])
    found = Comparison(resampled([[0.3], [0.1]], noise, images=1000), "AB").gaps["B"]
    assert found.half == pytest.approx(1.97 * np.std(noise[0], ddof=1), rel=0.01)
    assert (found.seeds, found.covers_seeds) == (1, False)


def test_resamples_without_a_positive_are_left_out():
    noise = np.stack([np.r_[np.nan, np.arange(10.0)], np.r_[np.nan, np.zeros(10)]])
    found = Comparison(resampled([[0.3], [0.1]], noise), "AB").gaps["B"]
    assert np.isfinite(found.half)
    assert found.half > 0


# -- gains ---------------------------------------------------------------------------------------


def test_gains_over_baselines_are_corrected_together_and_agree_with_the_lead():
    rng = np.random.default_rng(3)
    table = rng.normal(size=(4, 4)) * 0.1 + [[0], [1], [2], [3]]
    found = Comparison(resampled(table), "ABCD")
    assert found.leader == "D"
    own = found.gains("C", ["A", "B"])
    assert list(own) == ["A", "B"]
    assert own["A"].mean == pytest.approx(table[2].mean() - table[0].mean())
    assert {gain.comparisons for gain in own.values()} == {2}
    assert own["A"] == found.difference("C", "A", 2)
    assert found.gains("D", ["A", "B"]) == {label: found.gaps[label] for label in "AB"}
    assert found.gains("A", ["A", "B"]).keys() == {"B"}


def test_the_same_predictions_are_not_told_apart():
    """Rounding must not make a difference of equal rows clear."""
    rng = np.random.default_rng(4)
    row, noise = rng.normal(size=3), rng.normal(size=20)
    found = Comparison(resampled([row, row, row - 5], [noise, noise, noise]), "ABC")
    other = "B" if found.leader == "A" else "A"
    assert not found.gaps[other].is_clear
    assert found.gaps["C"].is_clear
    assert LEVEL == 0.05

"""Likelihoods with exact derivatives: against counting, and against differences."""

from __future__ import annotations

import numpy as np
import pytest

from adagc.priors import explained
from adagc.priors.explained import Labels, Local, lowest
from reference.slow_annotators import anything, random_known

BLIND = 7.0


def drawn(count: int = 30, classes: int = 4) -> tuple[Labels, np.ndarray]:
    """Images with a label, with several, with absences only and with nothing; and some numbers."""
    rng = np.random.default_rng(0)
    observed = rng.integers(-1, 2, size=(count, classes)).astype(np.int8)
    observed[:5] = 0
    observed[5:12] = np.minimum(observed[5:12], 0)
    labels = Labels(rng.normal(size=(count, classes, 3)), observed)
    return labels, rng.normal(size=3 + classes)


def slow(labels: Labels, numbers: np.ndarray, blind: float) -> float:
    """The logarithm of the same, by counting every set of labels of every image."""
    logits = labels.features @ numbers[:3] + numbers[3:]
    labelled = [bool((row > 0).any()) for row in labels.observed]
    total = 0.0
    for row, seen, has in zip(logits.tolist(), labels.observed.tolist(), labelled, strict=True):
        total += np.log(random_known(row, seen))
        if has:
            total -= (1 - blind / sum(labelled)) * np.log(anything(row))
    return total


@pytest.mark.parametrize("blind", [0.0, BLIND])
def test_the_likelihood_is_that_of_counting(blind):
    labels, numbers = drawn()
    assert labels.at(numbers, blind).value == pytest.approx(slow(labels, numbers, blind), rel=1e-12)


def test_derivatives_are_those_of_differences():
    labels, numbers = drawn()
    found, step = labels.at(numbers, BLIND), 1e-5
    for place in range(len(numbers)):
        moved = np.zeros(len(numbers))
        moved[place] = step
        up, down = labels.at(numbers + moved, BLIND), labels.at(numbers - moved, BLIND)
        assert (up.value - down.value) / (2 * step) == pytest.approx(found.slope[place], abs=1e-6)
        bend = (up.slope - down.slope) / (2 * step)
        np.testing.assert_allclose(bend, found.curvature[place], atol=1e-6)


def test_pieces_add_up(monkeypatch):
    labels, numbers = drawn()
    whole = labels.at(numbers, BLIND)
    monkeypatch.setattr(explained, "_ENTRIES", 40)
    pieces = labels.at(numbers, BLIND)
    assert pieces.value == pytest.approx(whole.value)
    np.testing.assert_allclose(pieces.slope, whole.slope)
    np.testing.assert_allclose(pieces.curvature, whole.curvature)


@pytest.mark.parametrize("size", [60.0, 800.0])
def test_extreme_logits_stay_finite(size):
    labels, numbers = drawn()
    for sign in (-1, 1):
        found = labels.at(sign * size * np.abs(numbers))
        assert np.isfinite(found.value)
        assert np.isfinite(found.slope).all()
        assert np.isfinite(found.curvature).all()


def test_the_lowest_point_is_found_from_where_the_cost_bends_downwards():
    def cost(x):
        """(x² - 1)² + (y - 2)²: bends downwards near x = 0."""
        value = (x[0] ** 2 - 1) ** 2 + (x[1] - 2) ** 2
        slope = np.array([4 * x[0] * (x[0] ** 2 - 1), 2 * (x[1] - 2)])
        return Local(value, slope, np.diag([12 * x[0] ** 2 - 4, 2.0]))

    found, curvature = lowest(cost, np.array([0.1, -5.0]), 0.01)
    np.testing.assert_allclose(found, [1, 2], atol=1e-4)
    np.testing.assert_allclose(np.diag(curvature), [8, 2], rtol=1e-3)

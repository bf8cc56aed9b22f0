"""How well scores explain held-out labels, on plain arrays, and what that hints at."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from adagc.choice import DOMINANT, Difference, compare, explained, hint, likelihood
from adagc.errors import DataError
from reference import slow_noisy


def world(images=120, classes=5, seed=0):
    """Scores of two methods, the first of which is the better one, and single labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(images, classes))
    labels = [rng.choice(classes, p=np.exp(row) / np.exp(row).sum()) for row in logits]
    good = 1 / (1 + np.exp(-logits))
    poor = 1 / (1 + np.exp(-(logits + 2 * rng.normal(size=logits.shape))))
    return good, poor, np.eye(classes, dtype=np.int8)[labels]


def test_likelihood_is_the_mean_over_labelled_images_of_the_slow_twin():
    good, _, observed = world()
    observed[::7] = 0  # nobody looked at these
    observed[1, :] = [1, 1, 0, -1, 0]
    each = explained(good, observed)
    assert np.isnan(each[::7]).all()
    assert np.isfinite(np.delete(each, np.s_[::7])).all()
    slow = slow_noisy.tempered(observed.tolist(), good.tolist())
    assert likelihood(good, observed) == pytest.approx(slow, abs=1e-9)
    assert np.nanmean(each) == pytest.approx(slow, abs=1e-9)


def test_without_any_label_nothing_is_known():
    scores = np.full((4, 3), 0.5)
    assert math.isnan(likelihood(scores, np.zeros((4, 3))))
    assert np.isnan(explained(scores, np.zeros((4, 3)))).all()


def test_compare_is_the_mean_of_paired_differences_with_its_standard_error():
    good, poor, observed = world()
    observed[::5] = 0
    found = compare(good, poor, observed)
    pairs = [
        one - two
        for one, two in zip(explained(good, observed), explained(poor, observed), strict=True)
        if not math.isnan(one)
    ]
    assert found.images == len(pairs) == 96
    assert found.mean == pytest.approx(likelihood(good, observed) - likelihood(poor, observed))
    half = 1.959964 * statistics.stdev(pairs) / math.sqrt(len(pairs))
    assert found.half == pytest.approx(half, rel=1e-6)
    assert (found.low + found.high) / 2 == pytest.approx(found.mean)
    assert found.low > 0
    back = compare(poor, good, observed)
    assert (back.mean, back.low) == pytest.approx((-found.mean, -found.high))
    assert compare(good, good, observed) == Difference(0, 0, 0, 96)


def test_intervals_cover_what_they_should():
    """The difference in a large sample lies in 95 % of the intervals of small ones."""
    truth = compare(*world(20_000, seed=99)).mean
    found = [compare(*world(200, seed=seed)) for seed in range(200)]
    share = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.90 <= share <= 0.99


def test_too_few_labels_are_refused():
    observed = np.zeros((5, 3))
    observed[0, 0] = 1
    with pytest.raises(DataError, match=r"observed label: 1; .* takes 2 or more"):
        compare(np.ones((5, 3)), np.ones((5, 3)), observed)
    with pytest.raises(DataError, match=r"must be \(images, classes\)"):
        compare(np.ones((5, 3)), np.ones((4, 3)), observed)


@pytest.mark.parametrize(
    ("mean", "half", "start"),
    [
        (0.09, 0.02, "Labels look like those of dominant classes rather than random ones ("),
        (0.05, 0.02, "Labels look like those of dominant classes rather than random ones ("),
        (0.05, 0.06, "It is not certain, but labels may be those of dominant classes rather"),
        (0.03, 0.02, "It is not certain, but labels may be random ones rather than those of dom"),
        (0.00, 0.03, "Labels look like random ones rather than those of dominant classes ("),
        (-0.20, 0.05, "Labels look like random ones rather than those of dominant classes ("),
    ],
)
def test_a_hint_is_as_certain_as_its_interval(mean, half, start):
    assert DOMINANT == 0.04
    text = hint(Difference(mean, mean - half, mean + half, 1234), "Area", "Cover")
    assert text.startswith(start)
    assert f"log-likelihood per label {mean:+.2f} ± {half:.2f} for Area against Cover" in text
    assert "95 % interval over 1,234 validation images, one run of each" in text
    assert text.endswith("This is a hint, not a test.")


def test_a_hint_says_how_many_runs_it_rests_on():
    assert "over 50 validation images, 5 runs of each" in hint(Difference(-0.0, -1, 1, 50, 5))
    assert "+0.00 ± 1.00" in hint(Difference(-0.0, -1, 1, 50, 5))

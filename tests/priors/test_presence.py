"""Presence and recovery from single labels: exact posteriors, shares, the wanted precision."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from adagc.errors import DataError, UsageError
from adagc.losses import random_posterior
from adagc.priors import find_cuts, fit_presence
from reference.slow_annotators import chance


def slow_posterior(logits: list[float], observed: list[int]) -> list[float]:
    """P(c | what was observed), by counting every set of labels."""
    seen = sum(o > 0 for o in observed)
    total, found = 0.0, [0.0] * len(logits)
    for labels in product((0, 1), repeat=len(logits)):
        pairs = list(zip(observed, labels, strict=True))
        fits = all((o <= 0 or y) and (o >= 0 or not y) for o, y in pairs)
        if fits and (sum(labels) or not seen):
            weight = chance(labels, logits) * (seen / sum(labels) if seen else 1)
            total += weight
            found = [f + weight * y for f, y in zip(found, labels, strict=True)]
    return [value / total for value in found]


@pytest.mark.parametrize(
    "observed", [[1, 0, 0, 0], [0, 0, 1, -1], [1, 1, 0, 0], [0, 0, 0, 0], [1, -1, 0, 0]]
)
def test_the_posterior_is_that_of_counting(observed):
    logits = [0.7, -1.2, 2.5, -0.3]
    found = random_posterior(
        torch.tensor([logits], dtype=torch.float64), torch.tensor([observed])
    ).sigmoid()[0]
    expected = slow_posterior(logits, observed)
    # A class that was seen to be absent is absent, also where nobody has drawn a label.
    expected = [0.0 if o < 0 else e for o, e in zip(observed, expected, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def simulated(count: int, *, scale: float, seed: int = 0):
    """Presence probabilities, truth, one random label, and scores that need calibration."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-0.5, 2.0, size=(2 * count, 8))
    chances = 1 / (1 + np.exp(-logits))
    truth = rng.random(chances.shape) < chances
    shown = np.flatnonzero(truth.any(axis=1))[:count]  # every image shows something
    logits, truth = logits[shown], truth[shown]
    observed = np.zeros(truth.shape, dtype=np.int8)
    for row in np.flatnonzero(truth.any(axis=1)):
        observed[row, rng.choice(np.flatnonzero(truth[row]))] = 1
    return 1 / (1 + np.exp(-(scale * logits - 1.5))), truth, observed


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_scores_become_probabilities_of_presence(scale):
    errors = []
    for seed in range(4):
        scores, truth, observed = simulated(3000, scale=scale, seed=seed)
        found = fit_presence(scores, observed, worth=math.inf).given(scores, observed)
        unknown = observed == 0
        inside = [unknown & (found >= at) & (found < at + 0.2) for at in (0.1, 0.3, 0.5, 0.7)]
        errors.append([found[one].mean() - truth[one].mean() for one in inside])
    # No bias; the level of a single set is known less well, most of all if scores are too sharp.
    assert np.abs(np.mean(errors, axis=0)).max() < 0.04
    assert np.abs(errors).max() < 0.12


@pytest.mark.parametrize("seed", range(6))
def test_few_labels_do_not_collapse_to_one_class_per_image(seed):
    """Where scores are twice too sharp, labels alone would explain that as well as the truth."""
    scores, truth, observed = simulated(600, scale=2.0, seed=seed)
    found = fit_presence(scores, observed, worth=math.inf).given(scores, observed)
    assert found.sum() == pytest.approx(truth.sum(), rel=0.2)


def test_images_are_not_made_to_show_something_they_do_not():
    """Where a tenth of all images shows nothing, those with a label do not speak for the rest."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-2.5, 2.0, size=(4000, 12))
    truth = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    shown = truth.any(axis=1)
    observed = np.zeros(truth.shape, dtype=np.int8)
    drawn = np.where(truth, rng.random(truth.shape), 0).argmax(axis=1)
    observed[np.flatnonzero(shown), drawn[shown]] = 1
    assert 0.05 < 1 - shown.mean() < 0.2
    found = fit_presence(1 / (1 + np.exp(-logits)), observed, worth=math.inf)
    values = found.given(1 / (1 + np.exp(-logits)))
    assert values.sum() == pytest.approx(truth.sum(), rel=0.12)  # without the condition 0.4 more


@pytest.mark.parametrize("precision", [0.7, 0.85])
def test_the_wanted_precision_is_reached(precision):
    scores, truth, observed = simulated(2000, scale=0.6, seed=1)
    model = fit_presence(scores[:800], observed[:800], worth=math.inf)
    rest, labels = scores[800:], observed[800:]
    cuts = find_cuts(model, rest, labels, precision=precision)
    decision = cuts.decide(model.given(rest, labels), labels)
    taken = (decision > 0) & (labels == 0)
    assert precision - 0.03 <= truth[800:][taken].mean() <= precision + 0.12
    assert (truth[800:][(decision < 0)]).mean() <= 0.07
    np.testing.assert_array_equal(decision[labels > 0], 1)


def excluding(count: int, *, seed: int):
    """The same of classes that come in pairs, of which every image shows exactly one."""
    rng = np.random.default_rng(seed)
    chances = 1 / (1 + np.exp(-rng.normal(0, 2.5, size=(count, 2))))
    first = rng.random(chances.shape) < chances
    truth = np.concatenate([first, ~first], axis=1)
    observed = np.zeros(truth.shape, dtype=np.int8)
    for row in range(count):
        observed[row, rng.choice(np.flatnonzero(truth[row]))] = 1
    return np.concatenate([chances, 1 - chances], axis=1), truth, observed


@pytest.mark.parametrize("seed", range(3))
def test_the_wanted_precision_is_reached_if_classes_exclude_each_other(seed):
    """Single labels do not show it, and the network's probabilities are right."""
    scores, truth, observed = excluding(2000, seed=seed)
    precisions = []
    for model in (fit_presence(scores, observed), fit_presence(scores, observed, worth=math.inf)):
        presence = model.given(scores, observed)
        taken = find_cuts(model, scores, observed).decide(presence, observed) > 0
        precisions.append(truth[taken & (observed == 0)].mean())
    assert precisions[0] > 0.78
    assert precisions[1] < 0.78  # if labels are believed as though classes were independent


def test_fewer_labels_are_recovered_if_less_is_known():
    scores, _, observed = simulated(3000, scale=0.6, seed=2)
    counts = []
    for known in (100, 2000):
        model = fit_presence(scores[:known], observed[:known])
        cuts = find_cuts(model, scores[2000:], observed[2000:])
        counts.append((model.given(scores[2000:], observed[2000:]) >= cuts.recovered).sum())
    assert counts[0] < counts[1]


def test_a_handful_of_labels_confirms_nothing():
    scores, _, observed = simulated(400, scale=0.6)
    model = fit_presence(scores, observed)
    top = model.drawn[0]
    assert not model.confirmed(top[:5]).any()
    assert model.confirmed(np.quantile(top, [0.5])).all()
    # Where observed labels are far fewer than expected, the calibration is not to be trusted.
    wrong = model.drawn.copy()
    wrong[2] *= 0.5
    object.__setattr__(model, "drawn", wrong)
    assert not model.confirmed(np.quantile(top, [0.5])).any()


def test_bad_arrays():
    scores, _, observed = simulated(60, scale=1.0)
    model = fit_presence(scores, observed)
    with pytest.raises(DataError, match="observed labels"):
        find_cuts(model, scores, observed[:5])
    with pytest.raises(UsageError, match="--precision must be"):
        find_cuts(model, scores, observed, precision=1.5)
    with pytest.raises(DataError, match="no image has an observed label"):
        fit_presence(scores, np.zeros_like(observed))
    everything = find_cuts(model, scores, np.ones_like(observed))
    assert np.isinf([everything.recovered, everything.absent]).all()

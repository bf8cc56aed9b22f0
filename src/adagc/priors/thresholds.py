"""From which score on a class is predicted, learnt from single observed labels.

A threshold of one half is right for calibrated probabilities, and those of methods that take
unobserved classes for absent are far too low. With how probable each class is in each image
(`adagc.priors.calibration`) a better one can be found for every class, without any clean label.

Which rule is the default was decided by evidence: docs/results/thresholds.md.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.priors.calibration import Floats, calibrated
from adagc.priors.checks import FEW_LABELS, checked
from adagc.priors.levels import presence_with_levels

Rule = Literal["pooled-f1", "expected-f1", "shares", "half"]
HALF = 0.5
# The threshold of a class that is expected in as many images counts as much as that of all classes.
_POOLED = 25
_SMALLEST = 1e-12  # a threshold of 0 has no logarithm


def thresholds(probabilities: ArrayLike, observed: ArrayLike, rule: Rule = "pooled-f1") -> Floats:
    """(C,) probability from which on each class is predicted.

    With fewer than 50 labelled images all are one half, because more cannot be learnt from them.

    Args:
        probabilities: (N, C) predictions of a network for images that it was not trained on.
        observed: (N, C) labels of these images: +1 seen to be present, 0 not known, -1 seen to be
            absent.
        rule: "pooled-f1" makes the F1 score of each class as large as can be expected, allows for
            classes whose scores are too high or too low everywhere, and moves the threshold of a
            rare class towards one that suits all classes; "expected-f1" does the first alone;
            "shares" predicts a class as often as it is estimated to be present; "half" is one half.
    """
    if rule == "half" or (np.asarray(observed) > 0).any(axis=1).sum() < FEW_LABELS:
        return np.full(np.shape(observed)[1], HALF)
    scores, seen = checked(probabilities, observed)
    if rule == "pooled-f1":
        return pooled_cuts(scores, presence_with_levels(scores, seen))
    presence = calibrated(scores, seen).presence(scores)
    return share_cuts(scores, presence) if rule == "shares" else f1_cuts(scores, presence)


def f1_cuts(scores: Floats, presence: Floats) -> Floats:
    """(C,) score from which on each class is predicted for the largest F1 that can be expected.

    Args:
        scores: (N, C) predictions.
        presence: (N, C) how probable each class is in each image. With clean labels in their place
            these are the best thresholds in hindsight.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    right = np.cumsum(np.take_along_axis(presence, order, axis=0), axis=0)
    counts = np.arange(1, len(scores) + 1)[:, None]
    merit = 2 * right / (counts + presence.sum(axis=0))
    return _best_cuts(np.take_along_axis(scores, order, axis=0), merit)


def share_cuts(scores: Floats, presence: Floats) -> Floats:
    """(C,) score from which on each class is predicted as often as it is expected."""
    ordered = -np.sort(-scores, axis=0)
    expected = presence.sum(axis=0)
    counts = np.arange(1, len(scores) + 1)[:, None]
    cuts = _best_cuts(ordered, -np.abs(counts - expected))
    none = expected < HALF  # fewer than one image
    return np.where(none, (1 + ordered[0]) / 2, cuts)


def pooled_cuts(scores: Floats, presence: Floats) -> Floats:
    """(C,) geometric means of the threshold of each class and of the one for all classes.

    The first counts as often as the class is expected: a few images say little about it.
    """
    own = np.maximum(f1_cuts(scores, presence), _SMALLEST)
    every = np.maximum(f1_cuts(scores.reshape(-1, 1), presence.reshape(-1, 1)), _SMALLEST)
    expected = presence.sum(axis=0)
    logs = (expected * np.log(own) + _POOLED * np.log(every)) / (expected + _POOLED)
    return np.asarray(np.exp(logs), dtype=np.float64)


def _best_cuts(ordered: Floats, merit: NDArray[np.float64]) -> Floats:
    """(C,) scores between two images of each class, where the merit is largest.

    Args:
        ordered: (N, C) scores of each class, from the largest to the smallest.
        merit: (N, C) how good it is to predict the class for this image and all before it.
    """
    # Images with equal scores are predicted together, so a cut is allowed only where they differ.
    below = np.vstack([ordered[1:], np.full((1, ordered.shape[1]), -np.inf)])
    best = np.where(ordered > below, merit, -np.inf).argmax(axis=0)
    columns = np.arange(ordered.shape[1])
    last, following = ordered[best, columns], below[best, columns]
    # In the middle between the last image that counts and the first that does not.
    cuts = np.where(np.isfinite(following), (last + np.maximum(following, 0)) / 2, last / 2)
    return np.asarray(cuts, dtype=np.float64)

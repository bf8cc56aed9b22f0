"""From which score on a class is predicted, learnt from single observed labels.

A threshold of one half is right for calibrated probabilities, and those of methods that take
unobserved classes for absent are far too low. With how probable each class is in each image
(`adagc.priors.calibration`) a better one can be found for every class, without any clean label.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from adagc.priors.calibration import Floats, fit
from adagc.priors.checks import FEW_LABELS, checked

Rule = Literal["expected-f1", "shares", "half"]
HALF = 0.5


def thresholds(probabilities: ArrayLike, observed: ArrayLike, rule: Rule = "expected-f1") -> Floats:
    """(C,) probability from which on each class is predicted.

    With fewer than 50 labelled images all are one half, because more cannot be learnt from them.

    Args:
        probabilities: (N, C) predictions of a network for images that it was not trained on.
        observed: (N, C) labels of these images: +1 seen to be present, 0 not known, -1 seen to be
            absent.
        rule: "expected-f1" makes the F1 score of each class as large as can be expected; "shares"
            predicts a class as often as it is estimated to be present; "half" is one half.
    """
    if rule == "half" or (np.asarray(observed) > 0).any(axis=1).sum() < FEW_LABELS:
        return np.full(np.shape(observed)[1], HALF)
    scores, seen = checked(probabilities, observed)
    presence = fit(scores, seen).calibration.presence(scores)
    order = np.argsort(-scores, axis=0, kind="stable")
    sorted_scores = np.take_along_axis(scores, order, axis=0)
    expected = presence.sum(axis=0)
    counts = np.arange(1, len(scores) + 1)[:, None]
    if rule == "shares":
        merit = -np.abs(counts - expected)
    else:
        right = np.cumsum(np.take_along_axis(presence, order, axis=0), axis=0)
        merit = 2 * right / (counts + expected)
    # Images with equal scores are predicted together, so a cut is allowed only where they differ.
    below = np.vstack([sorted_scores[1:], np.full((1, scores.shape[1]), -np.inf)])
    merit = np.where(sorted_scores > below, merit, -np.inf)
    best = merit.argmax(axis=0)
    columns = np.arange(scores.shape[1])
    last, following = sorted_scores[best, columns], below[best, columns]
    # In the middle between the last image that counts and the first that does not.
    cuts = np.where(np.isfinite(following), (last + np.maximum(following, 0)) / 2, last / 2)
    if rule == "shares":
        none = expected < HALF  # fewer than one image
        cuts = np.where(none, (1 + sorted_scores[0]) / 2, cuts)
    return np.asarray(cuts, dtype=np.float64)

"""Which missing labels to recover, so that a wanted share of them is right, without clean labels.

Entries of which nothing is known are ordered by how probable presence is (`adagc.priors.presence`).
Recovered are as many from the top as keep the expected share of right ones at the wanted
precision; absent are as many from the bottom as keep the expected share of truly absent ones at the
wanted level; what lies between is unsure. Expectations are those of the calibration, which has been
learnt from few labels, so it must hold for 9 of 10 calibrations that explain these labels; and
labels that were observed of held-out images must confirm what is expected of recovered ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError, check_range
from adagc.priors.calibration import Floats
from adagc.priors.presence import Presence

PRECISION = 0.8  # wanted share of recovered labels that are right
ABSENCE = 0.95  # wanted share of labels called absent that are
_SURE = 0.9  # share of calibrations for which it must hold
_DRAWS = 40
_IMAGES = 300  # more say hardly more about an expected share


@dataclass(frozen=True)
class Cuts:
    """From which probability of presence on a class is recovered, and up to which it is absent."""

    recovered: float  # infinite if none can be
    absent: float  # minus infinite if none can be

    def decide(self, presence: Floats, observed: NDArray[Any]) -> NDArray[np.int8]:
        """(N, C) +1 present, -1 absent, 0 unsure; what was observed stays as it was observed."""
        made = np.zeros(presence.shape, dtype=np.int8)
        made[presence <= self.absent] = -1
        made[presence >= self.recovered] = 1
        return np.where(observed != 0, np.sign(observed), made).astype(np.int8)


def find_cuts(
    model: Presence,
    probabilities: ArrayLike,
    observed: ArrayLike,
    *,
    precision: float = PRECISION,
    absence: float = ABSENCE,
) -> Cuts:
    """The cuts with which as many labels as possible are decided at the wanted precision.

    Args:
        model: What the probabilities of the network mean.
        probabilities: (N, C) predictions for the images that are completed.
        observed: (N, C) their labels: +1, 0, -1.
        precision: Wanted share of recovered labels that are right, above 0 and below 1.
        absence: Wanted share of absent labels that are truly absent.

    Raises:
        DataError: If both arrays do not have the same shape.
    """
    for name, value in (("precision", precision), ("absence", absence)):
        check_range(name, value, 0, 1, below=True)
    scores, seen = np.asarray(probabilities, dtype=np.float64), np.asarray(observed)
    if scores.shape != seen.shape:
        raise DataError(f"probabilities are {scores.shape} and observed labels {seen.shape}")
    if len(scores) > _IMAGES:
        rows = np.sort(np.random.default_rng(0).permutation(len(scores))[:_IMAGES])
        scores, seen = scores[rows], seen[rows]
    open_ = seen == 0
    values = model.given(scores, seen)[open_]
    if not len(values):
        return Cuts(math.inf, -math.inf)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    drawn = np.stack([one[open_][order] for one in model.draws(scores, seen, _DRAWS)])
    top = _lower(np.cumsum(drawn, axis=1))
    bottom = _lower(np.cumsum(1 - drawn[:, ::-1], axis=1))
    recovered = _last((top >= precision) & model.confirmed(ordered), ordered, math.inf)
    absent = _last(bottom >= absence, ordered[::-1], -math.inf)
    # Recovered goes first: what is present by one rule is not absent by the other.
    return Cuts(recovered, min(absent, float(np.nextafter(recovered, -math.inf))))


def _lower(sums: Floats) -> Floats:
    """The mean so far that all but the most doubtful tenth of calibrations reach."""
    means = sums / np.arange(1, sums.shape[1] + 1)
    found: Floats = np.quantile(means, 1 - _SURE, axis=0)
    return found


def _last(good: NDArray[np.bool_], ordered: Floats, otherwise: float) -> float:
    """The last value at which it is good to cut; equal values are cut together."""
    ends = np.append(ordered[1:] != ordered[:-1], True)
    places = np.flatnonzero(good & ends)
    return float(ordered[places[-1]]) if len(places) else otherwise

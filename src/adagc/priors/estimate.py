"""How many images contain each class, from predictions and one observed label per image.

The observed labels alone do not say it: a class that is the label of a tenth of the images may be
present in a tenth of them or in half. What tells is that a label is drawn less often where it has
company. `adagc.priors.calibration` learns from that how probable each class is in each image; the
means over images are the frequencies.

This holds if labels were drawn at random from the classes that are present. If people wrote down
the dominant class instead, classes that never dominate leave no trace, and frequencies cannot be
known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.metrics.noisy import tempered
from adagc.priors.calibration import Calibration, Fit, Floats, enough, fit
from adagc.priors.checks import FEW_LABELS, checked

_RESAMPLES = 400
_LEVEL = (2.5, 97.5)
# Other networks, trained on the same labels, give other estimates, which images drawn anew cannot
# show. So large is the deviation of their errors beyond that (docs/results/frequencies.md),
# of the logarithm of the number of labels, and of the logit of the frequency of a class.
NETWORK = 0.1
_CLASS = 3.5 * NETWORK
_SIDE = 1.96  # standard deviations to either side
# An interval wider than this share of the estimate, on either side, is no knowledge.
_WIDE = 0.35
# The difference of tempered likelihoods from which on labels look like those of dominant classes.
_DOMINANT = 0.04


@dataclass(frozen=True)
class Priors:
    """Estimated frequencies of classes and number of labels per image, with 95 % intervals."""

    frequencies: Floats  # (C,) share of images that contain each class
    cardinality: float  # mean number of labels per image
    interval: tuple[float, float]  # of the cardinality
    frequency_intervals: Floats  # (C, 2)
    trusted: bool  # whether the numbers may be used
    reason: str  # why, or why not, in a sentence
    calibration: Calibration

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "frequencies": self.frequencies.tolist(),
            "frequency_intervals": self.frequency_intervals.tolist(),
            "cardinality": self.cardinality,
            "interval": list(self.interval),
            "trusted": self.trusted,
            "reason": self.reason,
        }


def estimate(
    probabilities: ArrayLike,
    observed: ArrayLike,
    *,
    areas: ArrayLike | None = None,
    network: float = NETWORK,
    seed: int = 0,
) -> Priors:
    """Estimate how frequent classes are, and how many labels an image has.

    Of more than 10,000 images the calibration and the intervals are made from 10,000, so that the
    time it takes hardly grows any further; frequencies are means over all of them.

    Args:
        probabilities: (N, C) predictions of any method for images that it was not trained on, such
            as the validation images; their order within an image matters, not their level.
        observed: (N, C) labels of these images: +1 seen to be present, 0 not known, -1 seen to be
            absent.
        areas: (N, C) predictions of a method that takes labels for those of dominant classes (Area
            label), if there are any. If they explain the observed labels better, frequencies are
            not trusted.
        network: How much another network would change the estimate, as a standard deviation
            relative to it; the intervals cover this and the choice of images. 0 leaves it out.
        seed: Of the images that are drawn anew for the intervals.

    Raises:
        DataError: If the arrays do not fit each other, or no label was observed.
    """
    scores, seen = checked(probabilities, observed)
    rows = enough(seen)
    found = fit(scores[rows], seen[rows])
    frequencies = found.calibration.presence(scores).mean(axis=0)
    # The intervals are those of the images that the calibration was fitted to, around what all
    # images give.
    elsewhere = frequencies - found.calibration.presence(scores[rows]).mean(axis=0)
    drawn = _resampled(found, scores[rows], seed) + elsewhere
    low, high = (float(value) for value in np.percentile(drawn.sum(axis=1), _LEVEL))
    intervals: Floats = np.percentile(drawn, _LEVEL, axis=0).T
    cardinality = float(frequencies.sum())
    trusted, reason = _trust(scores, seen, cardinality, (low, high), areas)
    return Priors(
        frequencies,
        cardinality,
        with_network(low, high, network),
        _classes_with_network(intervals, network * _CLASS / NETWORK),
        trusted,
        reason,
        found.calibration,
    )


def with_network(low: float, high: float, network: float = NETWORK) -> tuple[float, float]:
    """An interval of the number of labels that covers the network, of one that covers images."""
    middle, side = (math.log(high) + math.log(low)) / 2, (math.log(high) - math.log(low)) / 2
    side = math.hypot(side, _SIDE * network)
    return math.exp(middle - side), math.exp(middle + side)


def _classes_with_network(intervals: Floats, network: float) -> Floats:
    """The same for (C, 2) intervals of frequencies, which stay between 0 and 1."""
    inner = np.clip(intervals, 1e-9, 1 - 1e-9)
    logits = np.log(inner) - np.log1p(-inner)
    middle, side = logits.mean(axis=1), np.ptp(logits, axis=1) / 2
    side = np.hypot(side, _SIDE * network)
    wide: Floats = 1 / (1 + np.exp(-np.stack([middle - side, middle + side], axis=1)))
    return wide


def _resampled(found: Fit, scores: Floats, seed: int) -> Floats:
    """(resamples, C) frequencies, each from as many images drawn with replacement."""
    rng = np.random.default_rng(seed)
    count = len(scores)
    drawn = np.empty((_RESAMPLES, scores.shape[1]))
    for number in range(_RESAMPLES):
        weights = rng.multinomial(count, np.full(count, 1 / count)).astype(np.float64)
        drawn[number] = weights @ found.moved(weights).presence(scores) / count
    return drawn


def _trust(
    scores: Floats,
    seen: NDArray[Any],
    cardinality: float,
    interval: tuple[float, float],
    areas: ArrayLike | None,
) -> tuple[bool, str]:
    """Whether the estimate may be used, and why."""
    labelled = int((seen > 0).any(axis=1).sum())
    if scores.shape[1] == 1:
        return False, "With one class there is nothing to tell its frequency from."
    if labelled < FEW_LABELS:
        return False, (
            f"Only {labelled} images have an observed label: frequencies need {FEW_LABELS} or more."
        )
    if areas is not None:
        gain = tempered(seen, areas) - tempered(seen, scores)
        if gain > _DOMINANT:
            return False, (
                "The labels look like those of dominant classes: models of covered area explain"
                f" them better by {gain:.3f} nats per image. Then it cannot be known how frequent"
                " classes are."
            )
    low, high = interval
    if not cardinality * (1 - _WIDE) <= low <= high <= cardinality * (1 + _WIDE):
        return False, (
            f"The images tell too little: anything from {low:.1f} to {high:.1f} labels per image"
            " explains what was observed."
        )
    return True, (
        "Holds if labels were drawn at random from the classes that are present, and not by their"
        " size or importance."
    )

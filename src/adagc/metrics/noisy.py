"""Criteria that choose epochs and options by observed labels alone, where most labels are missing.

An observed label is right, but the classes that were not observed may be present, too. If they are
counted as absent, as in the noisy mAP, a network that finds them scores worse. There are two ways
out. Ask how well the scores of an image explain *which label was observed* (likelihood, tempered,
rank): classes that are present compete with each other, whether one of them was observed or not.
Or ask only how often an image with an observed label scores above one without (auc): if each label
that is present was observed with the same probability, the missing ones cost every network the
same.

All take the same two arrays and are larger for better scores:

    observed:       (N, C) +1 seen to be present, 0 not known, -1 seen to be absent
    probabilities:  (N, C) predicted probabilities

If several labels of an image were observed, each counts equally, and the image as much as one with
a single label. A class that was seen to be absent competes with the observed label as a class that
is not known does: a high score for it is a mistake. Images without an observed label are left out;
only in the noisy mAP and the AUC they count, as images without any class. Without any observed
label all criteria are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError
from adagc.metrics.exact import average_precision

CriterionName = Literal["auc", "noisy-map", "likelihood", "tempered", "rank"]
# By evidence: docs/results/selection.md.
DEFAULT: CriterionName = "auc"

_SMALLEST = 1e-12  # a probability of 0 would make a likelihood infinitely bad
_LARGEST = 1e3  # of an exponent; from there on only the largest probability counts
_SEED = 0  # of the two halves: equal for all runs, so that their values can be compared

Floats = NDArray[np.float64]


def auc(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean over classes of P(an image with the label scores above one without it), ties one half.

    If a class is observed in a random part of the images that contain it, and is present in a share
    r of the others, this is expected to be (1 - r) A + r / 2, where A is the same for clean labels.
    So of two networks the one with the larger A is expected to be the better one here, too, however
    many labels are missing. Classes that no image has as its label, or all have, are left out.
    """
    seen, scores = _checked(observed, probabilities)
    values = []
    for member, column in zip((seen > 0).T, scores.T, strict=True):
        others, own = np.sort(column[~member]), column[member]
        if len(own) and len(others):
            below = np.searchsorted(others, own) + np.searchsorted(others, own, side="right")
            values.append(float(below.mean()) / (2 * len(others)))
    return float(np.mean(values)) if values else float("nan")


def noisy_map(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean average precision if every label that was not observed counted as absent.

    The mean is taken over the classes that were observed at least once.
    """
    positive = np.asarray(observed) > 0
    if not positive.any():
        return float("nan")
    return float(np.nanmean(average_precision(positive, probabilities)))


def likelihood(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean log-likelihood of the observed label s if P(s = c) = q_c = p_c / sum_j p_j.

    Example:
        >>> round(likelihood([[1, 0]], [[0.6, 0.2]]), 4)  # log(0.6 / 0.8)
        -0.2877
    """
    labels, logs = _labelled(observed, probabilities)
    return float(_explained(labels, logs, 1.0).mean()) if len(logs) else float("nan")


def tempered(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean log-likelihood of the observed label s if P(s = c) = q_c^a / sum_j q_j^a.

    The exponent a is fitted on one half of the images and used for the other half, and the other
    way round. So it does not matter how sharp or flat the scores are, which methods differ in, but
    only how they are ordered and spaced. The halves are the same in every call with as many images.
    """
    values = tempered_each(observed, probabilities)
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def tempered_each(observed: ArrayLike, probabilities: ArrayLike) -> Floats:
    """(N,) the same of every image; NaN where no label was observed."""
    labels, logs = _labelled(observed, probabilities)
    found = np.empty(len(logs))
    first = np.random.default_rng(_SEED).permutation(len(logs)) % 2 == 0
    for fitted in (first, ~first):
        exponent = fit_exponent(labels[fitted], logs[fitted])
        found[~fitted] = _explained(labels[~fitted], logs[~fitted], exponent)
    positive = np.asarray(observed) > 0
    values = np.full(len(positive), np.nan)
    values[positive.any(axis=1)] = found
    return values


def rank(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean share of the other classes that score below the observed label; ties do not.

    Other observed labels of the same image are not counted among the other classes. 1 means that
    the observed label always comes first, 0 that it always comes last.
    """
    seen, scores = _checked(observed, probabilities)
    positive = seen > 0
    images, classes = np.nonzero(positive)
    if not len(images):
        return float("nan")
    others = ~positive[images]
    below = others & (scores[images] < scores[images, classes][:, None])
    # Where nothing but observed labels is left, nothing can be ranked wrongly.
    count = others.sum(axis=1)
    shares = np.where(count > 0, below.sum(axis=1) / np.maximum(count, 1), 1.0)
    weights = 1 / positive.sum(axis=1)[images]
    return float((shares * weights).sum() / weights.sum())


def fit_exponent(labels: Floats, logs: Floats) -> float:
    """The exponent a, from 0 to 1,000, with which the labels are most likely.

    The log-likelihood is concave in a, so its slope has one zero, which Newton's method finds;
    where a step leaves the interval that must contain it, the interval is halved instead.

    Args:
        labels: (N, C) share of each class in the observed label of an image; rows sum to 1.
        logs: (N, C) logarithms of the probabilities.
    """
    count = len(logs)
    if not count:
        return 1.0
    logs = logs - logs.max(axis=1, keepdims=True)
    # One more label, any class of any image, keeps the exponent finite where the observed label of
    # every image comes first; with hundreds of images it changes nothing.
    wanted = float((labels * logs).sum() + logs.mean()) / (count + 1)
    low, high, exponent = 0.0, _LARGEST, 1.0
    if wanted <= logs.mean():
        return 0.0
    for _ in range(100):
        weights = np.exp(exponent * logs)
        weights /= weights.sum(axis=1, keepdims=True)
        means = (weights * logs).sum(axis=1, keepdims=True)
        slope = wanted - float(means.mean())
        curvature = float((weights * (logs - means) ** 2).sum()) / count
        low, high = (exponent, high) if slope > 0 else (low, exponent)
        step = exponent + slope / curvature if curvature > 0 else high
        step = step if low < step < high else (low + high) / 2
        if abs(step - exponent) <= 1e-10 * exponent:
            return step
        exponent = step
    return exponent


def _explained(labels: Floats, logs: Floats, exponent: float) -> Floats:
    """(N,) log-likelihood of the observed label of each image."""
    powers = exponent * (logs - logs.max(axis=1, keepdims=True))
    values: Floats = (labels * powers).sum(axis=1) - np.log(np.exp(powers).sum(axis=1))
    return values


def _labelled(observed: ArrayLike, probabilities: ArrayLike) -> tuple[Floats, Floats]:
    """Labels as shares of each class, and log-probabilities, of the images with a label."""
    seen, scores = _checked(observed, probabilities)
    positive = seen > 0
    rows = positive.any(axis=1)
    labels = positive[rows] / positive[rows].sum(axis=1, keepdims=True)
    return labels, np.log(np.maximum(scores[rows], _SMALLEST))


def _checked(observed: ArrayLike, probabilities: ArrayLike) -> tuple[NDArray[Any], Floats]:
    seen, scores = np.asarray(observed), np.asarray(probabilities, dtype=np.float64)
    if seen.ndim != 2 or seen.shape != scores.shape:
        raise DataError(
            f"observed labels are {seen.shape} and probabilities are {scores.shape}: both must be"
            " (images, classes)"
        )
    if not (scores >= 0).all() or not np.isfinite(scores).all():
        raise DataError("probabilities must be finite and not negative: pass those of a network")
    return seen, scores


@dataclass(frozen=True)
class Criterion:
    """A criterion, and how its values are printed."""

    compute: Callable[[ArrayLike, ArrayLike], float]  # of observed labels and probabilities
    title: str
    scale: float  # by which printed values are multiplied
    decimals: int  # that are printed
    near: float  # a difference that means little, because another seed changes as much

    def shown(self, value: float) -> str:
        """A value, or a difference of values, as it is printed."""
        return f"{value * self.scale:.{self.decimals}f}"


CRITERIA: Mapping[CriterionName, Criterion] = MappingProxyType(
    {
        "auc": Criterion(auc, "noisy AUC", 100, 2, 0.005),
        "noisy-map": Criterion(noisy_map, "noisy mAP", 100, 2, 0.005),
        "likelihood": Criterion(likelihood, "log-likelihood", 1, 3, 0.03),
        "tempered": Criterion(tempered, "tempered log-likelihood", 1, 3, 0.03),
        "rank": Criterion(rank, "rank of the observed label", 100, 2, 0.005),
    }
)
"""Every criterion by the name that options have for it; larger values are better."""


def criteria(observed: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """The values of all criteria by name."""
    return {name: one.compute(observed, probabilities) for name, one in CRITERIA.items()}

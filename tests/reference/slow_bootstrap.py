"""The paired bootstrap as one would explain it: images are repeated, curves computed anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.metrics import average_precision_score


def mean_average_precision(truth, scores, weights) -> float:
    """Of the images, each as often as its weight says; classes without a positive left out."""
    rows = [row for row, count in enumerate(weights) for _ in range(int(count))]
    found = []
    for c in range(truth.shape[1]):
        labels = [bool(truth[row, c]) for row in rows]
        if any(labels):
            found.append(average_precision_score(labels, [scores[row, c] for row in rows]))
    return sum(found) / len(found) if found else math.nan


def difference(
    truth,
    first: Mapping[int, np.ndarray],
    second: Mapping[int, np.ndarray],
    weights: Sequence[Sequence[int]],
    luck: Sequence[Sequence[float]],
) -> tuple[float, float, float]:
    """Mean difference and its 95 % interval.

    Args:
        truth: (N, C).
        first: Seed -> (N, C) scores of one row.
        second: Of the other.
        weights: How often each resample has each image.
        luck: For each resample what the mean over seeds may be off, in its standard errors.
    """
    shared = sorted(set(first) & set(second))
    once = [1] * len(truth)
    plain = [
        mean_average_precision(truth, first[seed], once)
        - mean_average_precision(truth, second[seed], once)
        for seed in shared
    ]
    mean = sum(plain) / len(plain)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in plain) / (len(plain) - 1))
    drawn = []
    for images, lucks in zip(weights, luck, strict=True):
        gaps = [
            mean_average_precision(truth, first[seed], images)
            - mean_average_precision(truth, second[seed], images)
            for seed in shared
        ]
        error = spread / math.sqrt(len(shared))
        drawn += [sum(gaps) / len(gaps) + one * error for one in lucks]
    drawn = sorted(value for value in drawn if not math.isnan(value))
    return mean, _quantile(drawn, 0.025), _quantile(drawn, 0.975)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between two neighbours in proportion."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])

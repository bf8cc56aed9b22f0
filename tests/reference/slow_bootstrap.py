"""The paired bootstrap as one would explain it: images are repeated, curves computed anew."""

from __future__ import annotations

import math

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

"""Shares of few observations, with intervals that are right for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float
    count: int  # of observations that it comes from


def wilson(hits: float, count: float) -> Estimate:
    """A share with the interval of Wilson, which stays inside 0 and 1 and is right for few.

    >>> found = wilson(8, 10)
    >>> round(found.low, 3), round(found.high, 3)
    (0.49, 0.943)
    """
    if count <= 0:
        return Estimate(float("nan"), 0.0, 1.0, 0)
    z = 1.959964
    share = hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = (
        z
        / (1 + z * z / count)
        * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    )
    # Rounding must not leave a share of 0 or 1 outside of its interval.
    low, high = min(share, middle - half), max(share, middle + half)
    return Estimate(share, max(0.0, low), min(1.0, high), int(count))


def clustered(hits: NDArray[np.int64], counts: NDArray[np.int64]) -> Estimate:
    """A share of observations that come in groups, such as the answers to questions of an image.

    What is alike within a group tells less than as many observations of different groups. The
    interval is that of Wilson for as many independent ones as would leave the same uncertainty.

    Args:
        hits: (groups,) number of hits in each group.
        counts: (groups,) number of observations in each.
    """
    total = int(counts.sum())
    if total == 0:
        return wilson(0, 0)
    share = float(hits.sum()) / total
    alone = share * (1 - share) / total
    together = float(((hits - share * counts) ** 2).sum()) / total**2
    effect = max(1.0, together / alone) if alone > 0 else 1.0
    found = wilson(float(hits.sum()) / effect, total / effect)
    return Estimate(share, found.low, found.high, total)

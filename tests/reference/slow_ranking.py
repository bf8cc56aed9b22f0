"""Ranks and their tests by counting, sorting and summing small steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist


def ranks(scores: Sequence[float]) -> list[float]:
    """Places in one block, the largest first; equal scores share the mean of their places."""
    places: list[float] = [0.0] * len(scores)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    for score in set(scores):
        shared = [place + 1 for place, i in enumerate(order) if scores[i] == score]
        for i in order:
            if scores[i] == score:
                places[i] = sum(shared) / len(shared)
    return places


def friedman(blocks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Chi-squared in the textbook form with sums of ranks, and Iman and Davenport's F."""
    n, k = len(blocks), len(blocks[0])
    sums = [0.0] * k
    for block in blocks:
        for method, rank in enumerate(ranks(block)):
            sums[method] += rank
    squares = sum(total**2 for total in sums)
    chi_squared = 12 / (n * k * (k + 1)) * squares - 3 * n * (k + 1)
    rest = n * (k - 1) - chi_squared
    return chi_squared, (n - 1) * chi_squared / rest if rest > 1e-9 else math.inf


def cliques(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """All stretches of sorted ranks without a significant pair that no other stretch contains."""
    ordered = sorted(mean_ranks)
    good = []
    for first, last in combinations(range(len(ordered)), 2):
        pairs = combinations(ordered[first : last + 1], 2)
        if all(abs(a - b) < difference for a, b in pairs):
            good.append((first, last))
    return [
        one
        for one in good
        if not any(other != one and other[0] <= one[0] and one[1] <= other[1] for other in good)
    ]


def range_probability(q: float, count: int, steps: int = 4000) -> float:
    """P(range of `count` standard normal variables <= q), by Simpson's rule over the lowest one.

    The lowest lies at z, all the others between z and z + q.
    """
    normal = NormalDist()

    def at(z: float) -> float:
        return count * normal.pdf(z) * (normal.cdf(z + q) - normal.cdf(z)) ** (count - 1)

    return _simpson(at, -9.0, 9.0, steps)


def f_survival(f: float, over: int, under: int, steps: int = 20000) -> float:
    """P(F > f): the density of F = tan² t, which is smooth in t up to its end, in small steps."""
    log_front = math.lgamma((over + under) / 2) - math.lgamma(over / 2) - math.lgamma(under / 2)
    front = 2 * math.exp(log_front)

    def at(t: float) -> float:
        # over F / under = tan² t, so that the beta variable is cos² t.
        return front * math.sin(t) ** (over - 1) * math.cos(t) ** (under - 1)

    start = math.atan(math.sqrt(over * f / under))
    return _simpson(at, start, math.pi / 2, steps)


def _simpson(function, low: float, high: float, steps: int) -> float:
    width = (high - low) / steps
    total = function(low) + function(high)
    for i in range(1, steps):
        total += (4 if i % 2 else 2) * function(low + i * width)
    return total * width / 3

"""A comparison of methods over complete tables, as a textbook would write it down."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

Table = Sequence[Sequence[float]]  # method, seed


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    return sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)


def interaction(table: Table) -> float:
    """Variance of what neither the method nor the seed explains."""
    methods, seeds = len(table), len(table[0])
    whole = mean([value for row in table for value in row])
    columns = [mean([row[seed] for row in table]) for seed in range(seeds)]
    squares = sum(
        (row[seed] - mean(row) - columns[seed] + whole) ** 2
        for row in table
        for seed in range(seeds)
    )
    return squares / ((methods - 1) * (seeds - 1))


def half_width(
    table: Table, drawn: Sequence[Sequence[float]], i: int, j: int, comparisons: int, images: int
) -> float:
    """Of the interval of row i minus row j.

    Args:
        table: One number per method and seed.
        drawn: Per resample of the images the means of the methods over the seeds.
        i: One method.
        j: Another.
        comparisons: How many are corrected for.
        images: Number of test images.
    """
    seeds = len(table[0])
    own = variance([a - b for a, b in zip(table[i], table[j], strict=True)])
    of_seeds = max(2 * interaction(table), own) / seeds
    of_images = variance([means[i] - means[j] for means in drawn])
    chance = 0.05 / comparisons / 2
    t_seeds = stats.t.isf(chance, (len(table) - 1) * (seeds - 1))
    t_images = stats.t.isf(chance, min(images, len(drawn)) - 1)
    return math.sqrt(t_seeds**2 * of_seeds + t_images**2 * of_images)


def steps(gaps: Sequence[float], half: dict[int, Sequence[float]]) -> list[bool]:
    """Which methods are clearly behind the leader, one after the other.

    Args:
        gaps: Of every method, 0 of the leader.
        half: Number of comparisons -> the half width of every method.
    """
    behind = [False] * len(gaps)
    while True:
        size = behind.count(False)
        correction = max(1, size * (size - 1) // 2)
        fresh = [
            i for i, gap in enumerate(gaps) if not behind[i] and gap > half[correction][i] + 1e-12
        ]
        if not fresh:
            return behind
        behind[max(fresh, key=lambda i: gaps[i] / half[correction][i])] = True

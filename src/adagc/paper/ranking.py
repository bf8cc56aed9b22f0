"""Tests whether methods differ over many comparisons, by their ranks.

Friedman's test and Nemenyi's critical difference, as described in J. Demšar, Statistical
Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006). A block is one comparison of all
methods under equal conditions. Blocks that share test images are not independent, so with several
seeds of few scenarios the p-values are too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.compare.distributions import f_survival
from adagc.errors import AdagcError

Scores = NDArray[np.float64]  # (blocks, methods); higher is better

# The normal density is integrated from -8.5 to 8.5 with 401 points; beyond it is negligible.
_REACH, _NODES = 8.5, 401


@dataclass(frozen=True)
class Friedman:
    """The result of a Friedman test: whether mean ranks differ by more than chance explains."""

    mean_ranks: NDArray[np.float64]  # 1 is best
    chi_squared: float
    f: float  # Iman and Davenport's statistic, less conservative than chi-squared
    degrees: tuple[int, int]  # degrees of freedom of f
    p: float  # p-value of f, but at least the chance that all blocks agree


def ranks(scores: Scores) -> NDArray[np.float64]:
    """Rank of every method in its block, 1 for the highest score; equals share their mean rank."""
    own, others = scores[:, :, None], scores[:, None, :]
    above = (others > own).sum(axis=2)
    equal = (others == own).sum(axis=2)  # including the method itself
    places: NDArray[np.float64] = above + (equal + 1) / 2
    return places


def friedman(scores: Scores) -> Friedman:
    """Test the hypothesis that all methods are equally good.

    chi² = 12 N / (k (k + 1)) (Σ R_j² - k (k + 1)² / 4) for N blocks and k methods with mean ranks
    R_j, and F = (N - 1) chi² / (N (k - 1) - chi²). Ties are not corrected for, which makes the
    p-value too large rather than too small.
    """
    n, k = scores.shape
    if n < 2 or k < 2:
        raise AdagcError(f"a Friedman test needs 2 methods and 2 blocks, not {k} and {n}")
    mean_ranks = ranks(scores).mean(axis=0)
    spread = float((mean_ranks**2).sum()) - k * (k + 1) ** 2 / 4
    chi_squared = max(0.0, 12 * n / (k * (k + 1)) * spread)
    remainder = n * (k - 1) - chi_squared  # 0 if all blocks agree
    f = (n - 1) * chi_squared / remainder if remainder > 1e-9 else math.inf
    degrees = (k - 1, (k - 1) * (n - 1))
    # The F distribution holds for many blocks only. With few blocks p can come out smaller than
    # the probability that all blocks agree by chance, so that probability is its lower limit.
    by_chance = math.exp(-(n - 1) * math.lgamma(k + 1))
    return Friedman(mean_ranks, chi_squared, f, degrees, max(by_chance, f_survival(f, *degrees)))


def critical_difference(methods: int, blocks: int, alpha: float = 0.05) -> float:
    """Difference of two mean ranks that is significant (Nemenyi): q √(k (k + 1) / (6 N))."""
    q = studentised_range(1 - alpha, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * blocks))


def cliques(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The largest groups of methods without a significant difference between any two.

    Each group is given by the positions of its first and last method when sorted by mean rank.

    >>> cliques([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    ordered = sorted(mean_ranks)
    groups: list[tuple[int, int]] = []
    for first, best in enumerate(ordered):
        last = max(i for i, rank in enumerate(ordered) if rank - best < difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def studentised_range(probability: float, count: int) -> float:
    """Quantile of the range of `count` standard normal variables.

    P(range <= q) = k ∫ φ(z) (Φ(z) - Φ(z - q))^(k-1) dz. The integrand is smooth and goes to 0 at
    both ends, so equal steps give about twelve digits. q is found by bisection.
    """
    z = np.linspace(-_REACH, _REACH, _NODES)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    below = _normal(z)
    low, high = 0.0, 20.0
    for _ in range(60):
        q = (low + high) / 2
        reached = count * float((density * (below - _normal(z - q)) ** (count - 1)).sum())
        low, high = (q, high) if reached < probability else (low, q)
    return (low + high) / 2


def _normal(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Φ(z), the probability that a standard normal variable is below z."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])

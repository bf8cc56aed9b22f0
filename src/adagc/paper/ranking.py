"""Whether methods differ over many comparisons: Friedman's test, Nemenyi's critical difference.

J. Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006). A block is
one comparison of all methods under equal conditions. Blocks that share test images are not
independent, so that with several seeds of few scenarios the test is too sure of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError

Scores = NDArray[np.float64]  # (blocks, methods), more is better

_REACH, _NODES = 8.5, 401  # where the normal density ends, and points up to there
_CLOSE = 1e-15


@dataclass(frozen=True)
class Friedman:
    """Whether the methods' mean ranks differ by more than chance explains."""

    mean_ranks: NDArray[np.float64]  # 1 is best
    chi_squared: float
    f: float  # Iman and Davenport's statistic, less conservative than chi-squared
    degrees: tuple[int, int]  # of freedom of f
    p: float  # of f; never less than blocks of that number and size can show


def ranks(scores: Scores) -> NDArray[np.float64]:
    """Place of every method in its block, 1 for the most; equal scores share their mean place."""
    mine, others = scores[:, :, None], scores[:, None, :]
    above = (others > mine).sum(axis=2)
    alike = (others == mine).sum(axis=2)  # itself included
    places: NDArray[np.float64] = above + (alike + 1) / 2
    return places


def friedman(scores: Scores) -> Friedman:
    """Test that all methods are alike.

    chi² = 12 N / (k (k + 1)) (Σ R_j² - k (k + 1)² / 4) for N blocks and k methods with mean ranks
    R_j, and F = (N - 1) chi² / (N (k - 1) - chi²). Ties are not corrected for, which errs on the
    side of caution.
    """
    n, k = scores.shape
    if n < 2 or k < 2:
        raise AdagcError(f"a Friedman test needs 2 methods and 2 blocks, not {k} and {n}")
    mean_ranks = ranks(scores).mean(axis=0)
    spread = float((mean_ranks**2).sum()) - k * (k + 1) ** 2 / 4
    chi_squared = max(0.0, 12 * n / (k * (k + 1)) * spread)
    room = n * (k - 1) - chi_squared  # 0 if all blocks agree
    f = (n - 1) * chi_squared / room if room > 1e-9 else math.inf
    degrees = (k - 1, (k - 1) * (n - 1))
    # The F distribution is an approximation for many blocks; so often all of them agree by chance.
    by_chance = math.exp(-(n - 1) * math.lgamma(k + 1))
    return Friedman(mean_ranks, chi_squared, f, degrees, max(by_chance, f_survival(f, *degrees)))


def critical_difference(methods: int, blocks: int, alpha: float = 0.05) -> float:
    """By how much the mean ranks of two methods must differ (Nemenyi): q √(k (k + 1) / (6 N))."""
    q = studentised_range(1 - alpha, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * blocks))


def cliques(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Largest groups that hold no significant difference: first and last place in sorted order.

    >>> cliques([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    ordered = sorted(mean_ranks)
    found: list[tuple[int, int]] = []
    for first, best in enumerate(ordered):
        last = max(i for i, rank in enumerate(ordered) if rank - best < difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def studentised_range(probability: float, count: int) -> float:
    """Quantile of the range of `count` standard normal variables.

    P(range <= q) = k ∫ φ(z) (Φ(z) - Φ(z - q))^(k-1) dz. The integrand is smooth and dies out, so
    that equal steps give it to some twelve digits; halving an interval finds q.
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
    """Φ, the share of a standard normal variable below z."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])


def f_survival(f: float, over: int, under: int) -> float:
    """Probability that a variable with this F distribution exceeds f."""
    if f == math.inf:
        return 0.0
    return _incomplete_beta(under / (under + over * f), under / 2, over / 2)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised I_x(a, b), from its continued fraction on the side where that converges fast."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # Lentz: numerators c and denominators d of ever longer fractions, each from the one before.
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            fraction *= c * d
        if abs(fraction - before) <= _CLOSE * abs(fraction):
            break
    return math.exp(log_front) * fraction / a


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300

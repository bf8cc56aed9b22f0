"""How people choose one label among the classes that are there: by chance, by area, by liking.

All functions take choices among what could have been chosen: `possible` (N, C) booleans, and
`chosen` (N,) the class that was taken, which must be possible. Images on which only one class is
possible say nothing, and do no harm.

Three questions, each with a number:

- **Random or Dominant?** P(c) = (1 - λ) / k + λ I(c is the largest), of k possible classes. λ is 0
  for labels drawn at random and 1 for those of dominant classes.
- **How strongly does area draw?** P(c) ∝ area_c^κ. κ is 0 for Random, 1 if a random point of the
  image is named, and beyond all bounds for Dominant.
- **Which classes are liked?** P(c) = w_c / Σ_possible w_j. The weights w are what training can be
  told (`--selection`): all equal means Random.

Intervals of λ and κ are those of the likelihood ratio: all values whose log-likelihood is less than
1.92 below the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.metrics.shares import Estimate

_DROP = 1.9207  # half of the 95th percentile of chi-square with one degree of freedom
LARGEST_POWER = 50.0  # a κ of this size is as good as Dominant


def dominance(
    chosen: NDArray[np.int64], possible: NDArray[np.bool_], areas: NDArray[np.float64]
) -> Estimate:
    """λ: the share of labels that name the dominant class beyond what chance does.

    Several classes that are equally large share the role of the largest. Where labels name the
    dominant class more rarely than chance would, λ is 0.
    """
    rows = np.flatnonzero(possible.sum(axis=1) > 1)
    chosen, possible = chosen[rows], possible[rows]
    area = np.where(possible, areas[rows], -np.inf)
    largest = area == area.max(axis=1, keepdims=True)
    picked = np.arange(len(rows)), chosen
    by_chance = 1 / possible.sum(axis=1)
    dominant = largest[picked] / largest.sum(axis=1)

    def likelihood(value: float) -> float:
        mixed = (1 - value) * by_chance + value * dominant
        return float(np.log(np.maximum(mixed, 1e-300)).sum())

    return _profile(likelihood, 0.0, 1.0, len(rows))


def area_power(
    chosen: NDArray[np.int64], possible: NDArray[np.bool_], areas: NDArray[np.float64]
) -> Estimate:
    """κ in P(c) ∝ area_c^κ among the possible classes, those without any area left out."""
    able = possible & (areas > 0)
    rows = np.flatnonzero(able[np.arange(len(chosen)), chosen] & (able.sum(axis=1) > 1))
    able = able[rows]
    logs = np.where(able, np.log(np.where(able, areas[rows], 1.0)), 0.0)
    picked = logs[np.arange(len(rows)), chosen[rows]]
    # Relative to the largest, so that no power of an area is beyond what a float holds.
    top = np.where(able, logs, -np.inf).max(axis=1, initial=-np.inf)
    relative = np.where(able, logs - top[:, None], -np.inf)

    def likelihood(value: float) -> float:
        with np.errstate(invalid="ignore"):
            grown = np.where(able, np.exp(value * np.where(able, relative, 0.0)), 0.0)
        # Negative powers grow towards small areas; the clip bounds them far beyond any use.
        return float((value * (picked - top) - np.log(grown.sum(axis=1))).sum())

    return _profile(likelihood, -LARGEST_POWER / 10, LARGEST_POWER, len(rows))


def _profile(likelihood: Callable[[float], float], low: float, high: float, count: int) -> Estimate:
    """The value with the largest likelihood and its interval, of a concave function."""
    if not count:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    best = _largest(likelihood, low, high)
    least = likelihood(best) - _DROP
    return Estimate(
        best,
        _crossing(likelihood, least, best, low),
        _crossing(likelihood, least, best, high),
        count,
    )


def _largest(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a concave function is largest, by the golden section; an end if it is one."""
    golden = (math.sqrt(5) - 1) / 2
    start, end = low, high
    one, two = end - golden * (end - start), start + golden * (end - start)
    at_one, at_two = function(one), function(two)
    while end - start > 1e-7 * (high - low):
        if at_one >= at_two:
            end, two, at_two = two, one, at_one
            one = end - golden * (end - start)
            at_one = function(one)
        else:
            start, one, at_one = one, two, at_two
            two = start + golden * (end - start)
            at_two = function(two)
    return max((low, (start + end) / 2, high), key=function)


def _crossing(
    function: Callable[[float], float], level: float, inside: float, outside: float
) -> float:
    """Where the function falls to the level between two places; the outer one if it does not."""
    if function(outside) >= level:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        if function(middle) >= level:
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


@dataclass(frozen=True)
class Liking:
    """How often each class is taken where it is possible, relative to the others."""

    weights: NDArray[np.float64]  # (C,) w, their geometric mean over the classes that tell is 1
    low: NDArray[np.float64]  # (C,) ends of 95 % intervals
    high: NDArray[np.float64]
    possible: NDArray[np.int64]  # (C,) on how many images with a choice the class was possible
    random: float  # p-value of all weights being equal; NaN if nothing tells


# How far classes are expected to lie apart before anything is known: log w has this deviation. It
# keeps a class that was possible a few times only from being told apart by chance.
PRIOR = 1.0


def liking(
    chosen: NDArray[np.int64], possible: NDArray[np.bool_], *, prior: float = PRIOR
) -> Liking:
    """Weights w in P(c) = w_c / Σ_possible w_j, by Newton's method on log w with a normal prior.

    Args:
        chosen: (N,) class that was taken.
        possible: (N, C) classes that could have been taken.
        prior: Standard deviation of log w that is expected.
    """
    classes = possible.shape[1]
    rows = np.flatnonzero(possible.sum(axis=1) > 1)
    able = possible[rows]
    taken = np.bincount(chosen[rows], minlength=classes).astype(np.float64)
    seen = able.sum(axis=0)
    told = seen > 0
    values = np.zeros(classes)
    shrink = np.eye(classes) / prior**2

    def objective(at: NDArray[np.float64]) -> float:
        total = np.log(np.where(able, np.exp(at), 0.0).sum(axis=1)).sum()
        return float(taken @ at - total - (at @ at) / (2 * prior**2))

    information = shrink.copy()
    for _ in range(100):
        grown = np.where(able, np.exp(values), 0.0)
        share = grown / grown.sum(axis=1, keepdims=True)
        slope = taken - share.sum(axis=0) - values / prior**2
        information = np.diag(share.sum(axis=0)) - share.T @ share + shrink
        step = np.linalg.solve(information, slope)
        length = 1.0
        while length > 1e-6 and objective(values + length * step) < objective(values):
            length /= 2
        values = values + length * step
        if np.abs(length * step).max() < 1e-10:
            break
    centred = np.eye(classes)
    if told.any():
        centred -= told / told.sum()
        values = np.where(told, values - values[told].mean(), 0.0)
    # Only differences between classes tell, so that the uncertainty of their common level is none.
    spread = np.sqrt(np.diag(centred @ np.linalg.inv(information) @ centred.T))
    return Liking(
        np.exp(values),
        np.exp(values - 1.959964 * spread),
        np.exp(values + 1.959964 * spread),
        seen.astype(np.int64),
        _equality(taken, able),
    )


def _equality(taken: NDArray[np.float64], able: NDArray[np.bool_]) -> float:
    """p-value of the score test of equal weights: are classes taken as often as chance would?"""
    if not len(able):
        return float("nan")
    share = able / able.sum(axis=1, keepdims=True)
    gap = taken - share.sum(axis=0)
    covariance = np.diag(share.sum(axis=0)) - share.T @ share
    rank = int(np.linalg.matrix_rank(covariance))
    return chi_square_tail(float(gap @ np.linalg.pinv(covariance) @ gap), rank) if rank else 1.0


def chi_square_tail(value: float, freedom: int) -> float:
    """P(χ² >= value) with so many degrees of freedom, by the finite sums for whole ones.

    >>> round(chi_square_tail(3.841459, 1), 4), round(chi_square_tail(9.487729, 4), 4)
    (0.05, 0.05)
    """
    if value <= 0 or freedom <= 0:
        return 1.0
    half = value / 2
    if freedom % 2 == 0:
        term = total = math.exp(-half)
        for k in range(1, freedom // 2):
            term *= half / k
            total += term
        return min(1.0, total)
    total = math.erfc(math.sqrt(half))
    term = math.exp(-half) * math.sqrt(half) / math.gamma(1.5)
    for k in range(1, freedom // 2 + 1):
        total += term
        term *= half / (k + 0.5)
    return min(1.0, total)


def distance_from_random(
    chosen: NDArray[np.int64], possible: NDArray[np.bool_], *, draws: int = 400, seed: int = 0
) -> tuple[Estimate, float]:
    """Share of labels that would have to be others for the classes to be as frequent as by chance.

    That is half of Σ_c |n_c - e_c| / N, with n_c labels of c and e_c = Σ_i I(c possible) / k_i.

    Returns:
        The distance with the interval from drawing images anew, and what labels that are drawn at
        random on the same images reach in 95 % of cases: a distance below that is chance.
    """
    count, classes = possible.shape
    if not count:
        return Estimate(float("nan"), float("nan"), float("nan"), 0), float("nan")
    share = possible / possible.sum(axis=1, keepdims=True)
    gap = -share
    gap[np.arange(count), chosen] += 1

    generator = np.random.default_rng(seed)
    value = float(np.abs(gap.sum(axis=0)).sum() / (2 * count))
    weights = generator.multinomial(count, np.full(count, 1 / count), draws)
    drawn = np.abs(weights @ gap).sum(axis=1) / (2 * count)
    first, last = (float(np.percentile(drawn, at)) for at in (2.5, 97.5))
    # Draws around a distance are longer than it, as noise only adds; the middle is moved back.
    excess = max(0.0, float(drawn.mean()) - value)
    levels = np.cumsum(share, axis=1)
    expected = share.sum(axis=0)
    by_chance = np.empty(draws)
    for draw in range(draws):
        label = (generator.random((count, 1)) >= levels[:, :-1]).sum(axis=1)
        labels = np.bincount(label, minlength=classes)
        by_chance[draw] = np.abs(labels - expected).sum() / (2 * count)
    low, high = max(0.0, first - excess), max(value, last - excess)
    estimate = Estimate(value, min(value, low), high, count)
    return estimate, float(np.percentile(by_chance, 95))

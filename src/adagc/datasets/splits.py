"""Cutting a data set into parts that all look like the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError


def stratified_split(
    groups: Sequence[Any] | NDArray[Any], shares: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Divide rows so that every part holds its share of every group.

    The size of each part is its share of all rows (largest remainder, so sizes add up); within a
    group each part gets its share rounded down, or one more.

    Args:
        groups: One label per row, of anything that compares.
        shares: Part to share; the shares sum to 1.
        seed: Decides which rows of a group go where, and which group gives a remainder to whom.

    Returns:
        Part to rows in ascending order; the parts are disjoint and cover everything.
    """
    fractions = np.array(list(shares.values()), dtype=np.float64)
    if not len(fractions) or (fractions < 0).any() or abs(fractions.sum() - 1) > 1e-6:
        raise UsageError(f"split shares {dict(shares)} must be >= 0 and sum to 1")
    rng = np.random.default_rng(seed)
    n = len(groups)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(group.reshape(-1), minlength=1).astype(np.int64)
    totals = _largest_remainder(n, fractions)
    counts = _cells(sizes, totals, rng)

    # rows ordered by group and shuffled inside it; part p takes the next counts[g, p] of group g
    order = np.lexsort((rng.random(n), group.reshape(-1)))
    part = np.repeat(np.tile(np.arange(len(totals)), len(sizes)), counts.reshape(-1))
    return {
        name: np.sort(order[part == p]).astype(np.int64, copy=False)
        for p, name in enumerate(shares)
    }


def _largest_remainder(n: int, fractions: NDArray[np.float64]) -> NDArray[np.int64]:
    # rounding first: 0.2 * 15 must be 3 and not 3.0000000000000004
    quotas = np.round(n * fractions / fractions.sum(), 9)
    totals: NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    missing = n - int(totals.sum())
    totals[np.argsort(totals - quotas, kind="stable")[:missing]] += 1
    return totals


def _cells(
    sizes: NDArray[np.int64], totals: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """(groups, parts) counts with the given margins, each its quota rounded down or one more."""
    n = max(int(totals.sum()), 1)
    products = sizes[:, None] * totals[None, :]  # whole numbers: no quota is off by a rounding
    counts = products // n
    remainders = products % n
    need = totals - counts.sum(axis=0)
    rest = sizes - counts.sum(axis=1)
    # serving the part in greatest need first always comes out even (Gale and Ryser); remainders
    # only break ties
    for g in rng.permutation(len(sizes)):
        chosen = np.lexsort((-remainders[g], -need))[: rest[g]]
        counts[g, chosen] += 1
        need[chosen] -= 1
    return counts

"""Dividing a data set into parts: parts of the same composition, or parts of whole blocks."""

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

    The size of each part is its share of all rows, rounded by the largest-remainder method so that
    the sizes add up. Of each group a part gets its share, rounded down or up.

    Args:
        groups: The group of each row, as values that can be sorted.
        shares: Name of each part and its share; the shares sum to 1.
        seed: Seed of the random choices: which rows of a group go to which part, and where shares
            are rounded up.

    Returns:
        The rows of each part in ascending order; every row is in exactly one part.
    """
    fractions = _fractions(shares)
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


def block_split(
    blocks: Sequence[Any] | NDArray[Any], shares: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Divide rows so that those of one block are in the same part.

    The size of each part differs from its share by at most the size of the largest block.

    Args:
        blocks: The block of each row, as values that can be sorted.
        shares: Name of each part and its share; the shares sum to 1.
        seed: Seed of the choice which blocks go to which part.

    Returns:
        The rows of each part in ascending order; every row is in exactly one part. A part is empty
        if there are too few blocks.
    """
    fractions = _fractions(shares)
    rng = np.random.default_rng(seed)
    _, block = np.unique(np.asarray(blocks), return_inverse=True)
    block = block.reshape(-1)
    sizes = np.bincount(block, minlength=1)
    wanted = fractions * len(block)
    # Of some random orders the one whose parts come closest to their shares, in the end.
    tries = [_dealt(sizes, wanted, rng) for _ in range(max(1, min(32, 100_000 // len(sizes))))]
    part, _ = min(tries, key=lambda found: found[1])
    return {name: np.flatnonzero(part[block] == p) for p, name in enumerate(shares)}


def _dealt(
    sizes: NDArray[np.int64], wanted: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """The part of each block, and how far parts are from what is wanted, at most.

    In a random order each block goes to the part that lacks most. So no part ends with more rows
    too many or too few than the largest block has: it lacks rows only as long as others, which
    lack fewer, are given none.
    """
    lacking = wanted.tolist()
    part = np.zeros(len(sizes), dtype=np.int64)
    for block in rng.permutation(len(sizes)).tolist():
        chosen = max(range(len(lacking)), key=lacking.__getitem__)
        part[block] = chosen
        lacking[chosen] -= int(sizes[block])
    return part, max(map(abs, lacking))


def _fractions(shares: Mapping[str, float]) -> NDArray[np.float64]:
    """The shares of the parts; UsageError if they do not sum to 1."""
    fractions = np.array(list(shares.values()), dtype=np.float64)
    if not len(fractions) or (fractions < 0).any() or abs(fractions.sum() - 1) > 1e-6:
        raise UsageError(f"split shares {dict(shares)} must be >= 0 and sum to 1")
    return fractions


def _largest_remainder(n: int, fractions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Divide n rows into whole numbers as close to the fractions as possible, with the sum n."""
    # Rounded first, so that 0.2 * 15 is 3 and not 3.0000000000000004.
    quotas = np.round(n * fractions / fractions.sum(), 9)
    totals: NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    missing = n - int(totals.sum())
    totals[np.argsort(totals - quotas, kind="stable")[:missing]] += 1
    return totals


def _cells(
    sizes: NDArray[np.int64], totals: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many rows of each group go to each part, (groups, parts).

    Rows of the result sum to `sizes`, columns to `totals`; each entry is the exact share, rounded
    down or up.
    """
    n = max(int(totals.sum()), 1)
    products = sizes[:, None] * totals[None, :]  # integers, so that there is no rounding error
    counts = products // n
    remainders = products % n
    need = totals - counts.sum(axis=0)
    rest = sizes - counts.sum(axis=1)
    # Giving the remaining rows of each group to the parts that lack most always reaches all totals
    # exactly (theorem of Gale and Ryser); the remainders only decide between equal parts.
    for g in rng.permutation(len(sizes)):
        chosen = np.lexsort((-remainders[g], -need))[: rest[g]]
        counts[g, chosen] += 1
        need[chosen] -= 1
    return counts

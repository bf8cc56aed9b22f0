"""How well people agree who labelled the same images: Cohen's and Fleiss' kappa."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLED = 1000  # draws of images for an interval


def cohen_kappa(table: NDArray[np.int64]) -> float:
    """Cohen's kappa of two people, from how often one said k where the other said l.

    κ = (p_o - p_e) / (1 - p_e), with p_o the share of images on which they agree and p_e what
    agreement by chance would be if each kept to their own habits. NaN where both always said the
    same one thing: then nothing can be told.

    >>> round(cohen_kappa(np.array([[20, 5], [10, 15]])), 3)
    0.4

    Args:
        table: (K, K) number of images by what the first and what the second person said.
    """
    total = table.sum()
    if total == 0:
        return float("nan")
    shares = table / total
    by_chance = float(shares.sum(axis=1) @ shares.sum(axis=0))
    if by_chance >= 1 - 1e-12:
        return float("nan")
    return float((np.trace(shares) - by_chance) / (1 - by_chance))


def fleiss_kappa(counts: NDArray[np.int64]) -> float:
    """Fleiss' kappa of any number of people; images may have different numbers of them.

    κ = (P - P_e) / (1 - P_e), with P the mean over images of the share of pairs of people who
    agree, and P_e = Σ_k p_k² where p_k is the share of all answers that are k. With as many people
    on every image it is what Fleiss has defined.

    Args:
        counts: (images, K) how many people said k; images with fewer than two people are left out.
    """
    people = counts.sum(axis=1)
    counts, people = counts[people > 1], people[people > 1]
    if not len(counts):
        return float("nan")
    pairs = people * (people - 1)
    agreeing = ((counts * (counts - 1)).sum(axis=1) / pairs).mean()
    by_chance = float(((counts.sum(axis=0) / people.sum()) ** 2).sum())
    if by_chance >= 1 - 1e-12:
        return float("nan")
    return float((agreeing - by_chance) / (1 - by_chance))


def cohen_interval(
    first: NDArray[np.int64], second: NDArray[np.int64], categories: int, *, seed: int = 0
) -> tuple[float, float, float]:
    """Cohen's kappa of two people and its 95 % interval, by drawing images anew.

    Args:
        first: (images,) what the first person said, from 0.
        second: (images,) what the second person said.
        categories: How many different things can be said.
        seed: Seed of the draws.
    """

    def kappas(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        # Only the sums of the table are needed, so that no table is made for every draw.
        agree = (first == second)[rows].mean(axis=1)
        draws = np.arange(len(rows))[:, None] * categories
        habits = [
            np.bincount((draws + said[rows]).ravel(), minlength=len(rows) * categories)
            for said in (first, second)
        ]
        one, other = (h.reshape(len(rows), categories) / rows.shape[1] for h in habits)
        chance = (one * other).sum(axis=1)
        sure = chance < 1 - 1e-12
        return np.where(sure, (agree - chance) / np.where(sure, 1 - chance, 1.0), np.nan)

    count = len(first)
    if not count:
        return (float("nan"),) * 3
    value = float(kappas(np.arange(count)[None])[0])
    rows = np.random.default_rng(seed).integers(0, count, (RESAMPLED, count))
    return value, *_ends(np.concatenate([kappas(part) for part in np.array_split(rows, 10)]))


def fleiss_interval(counts: NDArray[np.int64], *, seed: int = 0) -> tuple[float, float, float]:
    """Fleiss' kappa and its 95 % interval, by drawing images anew."""
    counts = counts[counts.sum(axis=1) > 1]
    value = fleiss_kappa(counts)
    if not len(counts):
        return value, float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    # A draw of images only weighs them, so that the table need not be copied for each.
    weights = generator.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), RESAMPLED)
    people = counts.sum(axis=1)
    each = (counts * (counts - 1)).sum(axis=1) / (people * (people - 1))
    agreeing = weights @ each / len(counts)
    habits = weights @ counts / (weights @ people)[:, None]
    chance = (habits**2).sum(axis=1)
    sure = chance < 1 - 1e-12
    drawn = np.where(sure, (agreeing - chance) / np.where(sure, 1 - chance, 1.0), np.nan)
    return value, *_ends(drawn)


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)


def coded(answers: Sequence[Sequence[str]]) -> tuple[list[NDArray[np.int64]], int]:
    """What several people said as numbers from 0, the same for the same answer, and how many."""
    known = {said: i for i, said in enumerate(sorted({a for one in answers for a in one}))}
    return [np.array([known[a] for a in one], dtype=np.int64) for one in answers], len(known)

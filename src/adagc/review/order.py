"""Which classes to ask about on which image, and which images first: pure functions of arrays."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError

Order = Literal["informative", "likely", "uncertain", "random"]
ORDERS: tuple[Order, ...] = get_args(Order)

LEAST = 0.2  # a class that is less probable is not suggested
MOST = 6  # number of classes that are suggested on one image


def suggested(
    presence: NDArray[np.float64],
    observed: NDArray[np.int8],
    *,
    least: float = LEAST,
    most: int = MOST,
) -> NDArray[np.bool_]:
    """(N, C) which classes to ask about: the most probable ones that nobody has looked for.

    Args:
        presence: (N, C) probability that a class is there.
        observed: (N, C) +1, 0, -1; only entries of 0 are asked about.
        least: Smallest probability of a suggestion.
        most: Largest number of suggestions on one image.
    """
    open_ = (observed == 0) & (presence >= least)
    values = np.where(open_, presence, -1.0)
    ranks = np.empty(values.shape, dtype=np.int64)
    order = np.argsort(-values, axis=1, kind="stable")
    np.put_along_axis(ranks, order, np.arange(values.shape[1])[None], axis=1)
    asked: NDArray[np.bool_] = open_ & (ranks < most)
    return asked


def ranked(
    presence: NDArray[np.float64],
    asked: NDArray[np.bool_],
    observed: NDArray[np.int8],
    *,
    order: Order = "informative",
    count: int | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Rows of the images to review, the first ones first; images without a question are left out.

    With H(p) for the entropy of an answer in bits:

    - "likely": by how many missing labels are expected, Σ_c p_c
    - "uncertain": by how much the answers tell, Σ_c H(p_c)
    - "informative": the same, but of each class the more has been asked the less another answer
      counts: images are added one by one to the set S so that Σ_c √(n_c + Σ_{i in S} H(p_ic)) grows
      most, with n_c images on which the class was observed. So rare classes are asked about first,
      and no class all the time.
    - "random": in random order

    Args:
        presence: (N, C) probability that a class is there.
        asked: (N, C) which classes are asked about, from `suggested`.
        observed: (N, C) +1, 0, -1.
        order: One of the orders above.
        count: Number of images to return; all by default.
        seed: Seed of the random order, and of the order of equals.
    """
    if order not in ORDERS:
        raise UsageError(f"there is no order {order!r}: choose from {', '.join(ORDERS)}")
    rows = np.flatnonzero(asked.any(axis=1))
    rows = np.random.default_rng(seed).permutation(rows)
    wanted = len(rows) if count is None else min(count, len(rows))
    if order == "random":
        return rows[:wanted]
    p = np.where(asked[rows], presence[rows], 0.0)
    if order == "likely":
        return rows[np.argsort(-p.sum(axis=1), kind="stable")[:wanted]]
    information = entropy(p)
    if order == "uncertain":
        return rows[np.argsort(-information.sum(axis=1), kind="stable")[:wanted]]
    known = (observed > 0).sum(axis=0).astype(np.float64)
    return rows[_covering(information, known, wanted)]


def entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """-p log p - (1 - p) log(1 - p) to the base of 2; 0 at both ends.

    >>> entropy(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    value = -inside * np.log2(inside) - (1 - inside) * np.log2(1 - inside)
    return np.where((p > 0) & (p < 1), value, 0.0)


_POOL = 5_000  # images that are compared in every step, those that tell most alone


def _covering(
    information: NDArray[np.float64], known: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Images in the order in which each adds most to Σ_c √(known_c + information of c so far)."""
    total = known + 1.0  # one, so that a class that was never observed does not count without bound
    # A step costs images x classes, so that all of many images are not compared in each.
    first = (np.sqrt(total + information) - np.sqrt(total)).sum(axis=1)
    by_first = np.argsort(-first, kind="stable")
    pool = by_first[: max(_POOL, 2 * min(count, _POOL))]
    left = information[pool].copy()
    picked = np.empty(min(count, len(pool), _POOL), dtype=np.int64)
    free = np.ones(len(pool), dtype=np.bool_)
    for step in range(len(picked)):
        gain = (np.sqrt(total + left) - np.sqrt(total)).sum(axis=1)
        best = int(np.argmax(np.where(free, gain, -1.0)))
        picked[step] = pool[best]
        free[best] = False
        total += left[best]
    if len(picked) == count:
        return picked
    taken = np.zeros(len(information), dtype=np.bool_)
    taken[picked] = True
    return np.concatenate([picked, by_first[~taken[by_first]]])[:count]

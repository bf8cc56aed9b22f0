"""From embeddings of class names to a matrix that says which classes belong together.

The embeddings of short names in the same sentence point almost the same way, so their cosines are
all large and nearly equal: taken as they are they would tie every class to every other. What tells
the names apart is what is left of them once their mean is subtracted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NOTHING = 1e-6  # of a length or cosine that is a rounding error


def cosines(embeddings: ArrayLike) -> NDArray[np.float64]:
    """(C, C) cosines between the embeddings after centring: ê_c = e_c - mean(e).

    A class whose embedding is the mean itself is like no other: its row and column are 0.
    """
    e = np.asarray(embeddings, dtype=np.float64)
    centred = e - e.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    there = length > _NOTHING * np.linalg.norm(e, axis=1).max(initial=0.0)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=there)
    similar: NDArray[np.float64] = unit @ unit.T
    return similar


def correlation(embeddings: ArrayLike) -> NDArray[np.float64]:
    """S, (C, C): S_cc' = max(0, cos(ê_c, ê_c')) for c' ≠ c and 0 for c' = c, rows summing to 1.

    The row of a class without a similar one is 0.
    """
    similar = cosines(embeddings)
    similar[similar < _NOTHING] = 0
    np.fill_diagonal(similar, 0)
    total = similar.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(
        similar, total, out=np.zeros_like(similar), where=total > 0
    )
    return shares

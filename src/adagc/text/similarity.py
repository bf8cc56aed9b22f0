"""Similarity of classes, computed from the embeddings of their names.

The embeddings of short names in the same sentence have almost the same direction, so that their
cosine similarities are all large and nearly equal, as if every class were related to every other.
The mean is therefore subtracted from the embeddings first; the rest shows how names differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NOTHING = 1e-6  # smaller (relative) lengths and cosines are rounding errors and count as 0


def cosines(embeddings: ArrayLike) -> NDArray[np.float64]:
    """Cosine similarities, (C, C), between the embeddings after centring: ê_c = e_c - mean(e).

    Row and column of a class whose embedding equals the mean are 0.
    """
    e = np.asarray(embeddings, dtype=np.float64)
    centred = e - e.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    nonzero = length > _NOTHING * np.linalg.norm(e, axis=1).max(initial=0.0)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=nonzero)
    similar: NDArray[np.float64] = unit @ unit.T
    return similar


def correlation(embeddings: ArrayLike) -> NDArray[np.float64]:
    """S, (C, C): S_cc' = max(0, cos(ê_c, ê_c')) for c' ≠ c and 0 for c' = c, rows summing to 1.

    This is the matrix with which the method LCR relates classes. The row of a class to which no
    other is similar is 0.
    """
    similar = cosines(embeddings)
    similar[similar < _NOTHING] = 0
    np.fill_diagonal(similar, 0)
    total = similar.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(
        similar, total, out=np.zeros_like(similar), where=total > 0
    )
    return shares

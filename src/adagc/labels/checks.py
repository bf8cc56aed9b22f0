"""The check of label matrices that are given as plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def positives(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Where a label matrix says that a class is present, (N, C).

    Args:
        values: (N, C), booleans or the numbers -1, 0 and +1, of which +1 means present.
        name: What the error message calls the matrix.

    Raises:
        ValueError: The matrix is not two-dimensional, or holds other values (probabilities, class
            numbers, NaN).
    """
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape (images, classes), not {array.shape}")
    if array.dtype == np.bool_:
        return array
    if not np.issubdtype(array.dtype, np.number):
        raise ValueError(f"{name} must hold numbers or booleans, not {array.dtype}")
    present: NDArray[np.bool_] = array == 1
    allowed = present | (array == 0) | (array == -1)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0].tolist()
        raise ValueError(
            f"{name} may hold only -1, 0 and 1, not {array[row, column]} "
            f"(row {row}, column {column})"
        )
    return present

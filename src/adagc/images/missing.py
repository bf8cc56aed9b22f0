"""Missing values: pixels that hold no data are NaN, whatever a file writes in their place.

Files of integers mark such pixels by a number (-9999, 0, 65535). Those pixels become NaN when the
values are read, for which integers become floats that hold all of them exactly. From there on only
NaN means missing: statistics leave it out, resizing and mixing of images pass it on, and the
network puts the mean of the band in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mark(values: NDArray[Any], nodata: Iterable[float]) -> NDArray[Any]:
    """The values with NaN wherever they are one of the `nodata` numbers, in a new array.

    The dtype of the result is `marked_dtype`; if it cannot hold any of the numbers, nothing can be
    missing, and the values themselves are returned.
    """
    numbers = [number for number in nodata if _fits(values.dtype, number)]
    if not numbers:
        return values
    marked = values.astype(marked_dtype(values.dtype, numbers))
    for number in numbers:
        marked[values == _as(values.dtype, number)] = np.nan
    return marked


def marked_dtype(dtype: np.dtype[Any], nodata: Iterable[float]) -> np.dtype[Any]:
    """The dtype of values of this dtype after `mark`: the smallest float that holds them all."""
    if not any(_fits(dtype, number) for number in nodata):
        return dtype
    return np.promote_types(dtype, np.float16)


def mean_of_rest(values: NDArray[Any], axis: tuple[int, ...]) -> NDArray[np.float32]:
    """The mean over some axes without missing values; NaN where all of them are missing."""
    means: NDArray[np.float32] = values.mean(axis=axis, dtype=np.float32)
    if values.dtype.kind != "f" or not np.isnan(means).any():
        return means
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0).sum(axis=axis, dtype=np.float64)
    some = np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
    return np.where(np.isnan(means), some, means)


def _fits(dtype: np.dtype[Any], number: float) -> bool:
    """Whether a value of this dtype can be equal to the number."""
    if np.isnan(number) or dtype.kind not in "iuf":
        return False  # NaN is missing anyway
    if dtype.kind == "f":
        return bool(np.isfinite(_as(dtype, number)) or np.isinf(number))
    limits = np.iinfo(dtype)
    return bool(limits.min <= number <= limits.max and number == np.floor(number))


def _as(dtype: np.dtype[Any], number: float) -> Any:
    with np.errstate(over="ignore"):
        return dtype.type(int(number) if dtype.kind in "iu" else number)

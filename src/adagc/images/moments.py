"""Count, mean, spread, minimum and maximum of every band, measured per image and then combined.

For one band of one image seven numbers are kept: how many values are finite, their sum, their sum
of squares, the minimum, the maximum, how many values equal the largest value of the dtype, and how
many are infinite; the remaining ones are missing (NaN). For integers of up to 16 bits all seven are
integers, so that their sums are exact and the result does not depend on the order in which images
are combined. For other values the mean and the sum of squared deviations from it are kept instead
of the two sums, because sums lose precision if the spread is small compared with the mean (Chan,
Golub and LeVeque, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CHUNK_VALUES = 4_000_000  # values that are measured at once: 32 MB in float64
CONSTANT = 1e-7  # a band is called constant if spread / largest absolute value is at most this
LARGEST: Final = float(np.finfo(np.float32).max)  # networks take larger values for infinity
KEPT: Final = 7  # numbers that are kept per band and image

_BLOCK = 2**20  # values of a band that are converted to 64 bits at once
_ROWS = 2**16  # images whose numbers are combined at once


@dataclass(frozen=True)
class BandStatistics:
    """Statistics with one entry per band (per feature for embeddings), over finite values only."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]  # population standard deviation; 1 for a constant or empty band
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    count: NDArray[np.int64]  # number of finite values
    missing: NDArray[np.float64]  # share of missing values (NaN)
    infinite: NDArray[np.float64]  # share of infinite values
    saturated: NDArray[np.float64]  # share equal to the largest integer of the dtype; 0 for floats
    constant: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The statistics as lists for JSON; None in place of NaN (a band without finite values)."""
        return {
            name: [None if value != value else value for value in np.asarray(column).tolist()]
            if isinstance(column := getattr(self, name), np.ndarray)
            else list(column)
            for name in self.__dataclass_fields__
        }


class Moments:
    """Running statistics per band, to which values can be added in any order."""

    def __init__(self, bands: int) -> None:
        self.seen = np.zeros(bands, dtype=np.int64)  # number of values, finite or not
        self.minimum = np.full(bands, np.inf)
        self.maximum = np.full(bands, -np.inf)
        self.top = np.zeros(bands, dtype=np.int64)  # number of values equal to the dtype's maximum
        self.infinite = np.zeros(bands, dtype=np.int64)  # number of infinite values
        # For integer values: count, sum, sum of squares, as Python integers, which cannot overflow.
        self._whole = np.zeros((3, bands), dtype=object)
        # For other values: count, mean, sum of squared deviations.
        self._real = np.zeros((3, bands))

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of finite values per band."""
        count: NDArray[np.int64] = (self._whole[0] + self._real[0]).astype(np.int64)
        return count

    def add(self, values: NDArray[Any]) -> None:
        """Add the values (N, bands, ...)."""
        if values.size:
            flat = np.ascontiguousarray(np.moveaxis(values, 1, 0)).reshape(1, values.shape[1], -1)
            self.take(tally(flat), flat.shape[-1])

    def take(
        self, kept: NDArray[Any], each: int, bands: Sequence[int] | slice = slice(None)
    ) -> None:
        """Add images that `tally` has measured.

        Args:
            kept: The seven numbers of each band of each image, (N, bands, 7).
            each: Number of values in a band of one image, finite or not.
            bands: Which bands these are, all of them by default. So bands that are measured as
                integers can stand beside others.
        """
        if not len(kept):
            return
        count, middle, spread, low, high, top, infinite = np.moveaxis(kept, -1, 0)
        self.seen[bands] += len(kept) * each
        self.top[bands] += top.sum(axis=0).astype(np.int64)
        self.infinite[bands] += infinite.sum(axis=0).astype(np.int64)
        self.minimum[bands] = np.minimum(self.minimum[bands], low.min(axis=0))
        self.maximum[bands] = np.maximum(self.maximum[bands], high.max(axis=0))
        every = count.sum(axis=0)
        if kept.dtype.kind == "i":
            # The sum of squares of one image fits into 64 bits, that of many images may not: the
            # upper and lower 32 bits are summed separately.
            upper, lower = (spread >> 32).sum(axis=0), (spread & 2**32 - 1).sum(axis=0)
            squares = upper.astype(object) * 2**32 + lower.astype(object)
            self._whole[:, bands] += np.stack([every, middle.sum(axis=0), squares])
            return
        mean = middle[0] + (count * (middle - middle[0])).sum(axis=0) / np.maximum(every, 1)
        squares = spread.sum(axis=0) + (count * (middle - mean) ** 2).sum(axis=0)
        self._real[:, bands] = _joined(self._real[:, bands], np.stack([every, mean, squares]))

    def merge(self, other: Moments) -> None:
        """Add everything that `other` has measured."""
        self.seen += other.seen
        self.top += other.top
        self.infinite += other.infinite
        self.minimum = np.minimum(self.minimum, other.minimum)
        self.maximum = np.maximum(self.maximum, other.maximum)
        self._whole = self._whole + other._whole
        self._real = _joined(self._real, other._real)

    def statistics(self, bands: Sequence[str]) -> BandStatistics:
        """The statistics of everything added so far; `bands` are the names for the notes."""
        mean, squares = self._centred()
        count = self.count
        empty = count == 0
        spread = np.sqrt(squares / np.maximum(count, 1))
        size = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
        with np.errstate(invalid="ignore"):
            constant = ~empty & ((spread <= CONSTANT * size) | (self.minimum == self.maximum))
        notes = [f"band {bands[b]} is constant" for b in np.flatnonzero(constant).tolist()]
        notes += [f"band {bands[b]} has no finite value" for b in np.flatnonzero(empty).tolist()]
        seen = np.maximum(self.seen, 1)
        return BandStatistics(
            mean=mean,
            std=np.where(constant | empty, 1.0, spread),
            minimum=np.where(empty, np.nan, self.minimum),
            maximum=np.where(empty, np.nan, self.maximum),
            count=count,
            missing=(self.seen - count - self.infinite) / seen,
            infinite=self.infinite / seen,
            saturated=self.top / seen,
            constant=constant,
            notes=tuple(notes),
        )

    def _centred(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and sum of squared deviations per band, over integer and other values."""
        count, total, squares = self._whole
        if not count.any():
            return self._real[1], self._real[2]
        least = np.maximum(count, 1)
        # Python integers are exact at any size; only the division at the end rounds.
        whole = np.stack([count, total / least, (count * squares - total**2) / least])
        whole = whole.astype(np.float64)
        both = _joined(self._real, whole) if self._real[0].any() else whole
        return both[1], both[2]


def _joined(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Combine count, mean and sum of squared deviations of two sets of values, (3, bands) each."""
    (count, mean, squares), (more, second_mean, second_squares) = first, second
    total = np.maximum(count + more, 1)
    delta = second_mean - mean
    joined = squares + second_squares + delta**2 * count * more / total
    return np.stack([count + more, mean + delta * more / total, joined])


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the numbers that `tally` returns for values of this dtype."""
    whole = dtype.kind in "iu" and dtype.itemsize <= 2  # sums of squares of wider ones overflow
    return np.dtype(np.int64 if whole else np.float64)


def usable(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are finite, also as the 32-bit floats that networks compute with."""
    narrow = values.dtype.itemsize <= 4 or values.dtype.kind != "f"
    good: NDArray[np.bool_] = np.isfinite(values) if narrow else np.abs(values) <= LARGEST
    return good


def flaws(values: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of these images, along the first axis, have missing values, and which infinite ones."""
    if values.dtype.kind != "f":
        return np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    flat = values.reshape(len(values), -1)
    absent = np.isnan(flat)
    return absent.any(axis=1), (~usable(flat) & ~absent).any(axis=1)


def tally(values: NDArray[Any]) -> NDArray[Any]:
    """Measure the seven numbers of the module docstring over the last axis: (..., n) to (..., 7).

    `middle` and `spread` below are the sum and the sum of squares for integers of up to 16 bits,
    otherwise the mean and the sum of squared deviations.
    """
    kept = np.zeros((*values.shape[:-1], KEPT), dtype=kept_dtype(values.dtype))
    count, middle, spread, low, high, top, infinite = np.moveaxis(kept, -1, 0)
    if kept.dtype.kind == "i":
        count[...] = values.shape[-1]
        low[...], high[...] = values.min(axis=-1), values.max(axis=-1)
        for start in range(0, values.shape[-1], _BLOCK):
            wide = values[..., start : start + _BLOCK].astype(np.int64)
            middle += wide.sum(axis=-1)
            spread += np.einsum("...n,...n->...", wide, wide)
    else:
        wide = values.astype(np.float64)
        good = usable(values)
        if good.all():
            count[...] = values.shape[-1]
            middle[...] = wide.mean(axis=-1)
            low[...], high[...] = wide.min(axis=-1), wide.max(axis=-1)
            wide -= middle[..., None]
        else:
            count[...] = good.sum(axis=-1)
            infinite[...] = (~good & ~np.isnan(wide)).sum(axis=-1)
            middle[...] = wide.sum(axis=-1, where=good) / np.maximum(count, 1)
            low[...] = wide.min(axis=-1, where=good, initial=np.inf)
            high[...] = wide.max(axis=-1, where=good, initial=-np.inf)
            wide = np.where(good, wide - middle[..., None], 0.0)
        spread[...] = np.einsum("...n,...n->...", wide, wide)
    if values.dtype.kind in "iu":
        most = np.iinfo(values.dtype).max
        if (high == most).any():
            top[...] = np.count_nonzero(values == most, axis=-1)
    return kept


def tally_images(images: NDArray[Any]) -> NDArray[Any]:
    """The seven numbers of every band of every image: (N, bands, ...) to (N, bands, 7)."""
    return tally(images.reshape(*images.shape[:2], -1))


@dataclass(frozen=True)
class Kept:
    """The moments of some images, as `tally_images` measured them."""

    table: NDArray[Any]  # the seven numbers of every band of all images, (N, bands, 7)
    rows: NDArray[np.int64]  # which images these are
    each: int  # number of values in a band of one image, finite or not

    def combined(self) -> Moments:
        """The moments of all of them together."""
        moments = Moments(self.table.shape[1])
        for block in self._blocks():
            moments.take(block, self.each)
        return moments

    def flaws(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the images have missing values, and which have infinite ones."""
        missing = np.zeros(len(self.rows), dtype=np.bool_)
        infinite = np.zeros(len(self.rows), dtype=np.bool_)
        for start, block in enumerate(self._blocks()):
            chunk = slice(start * _ROWS, (start + 1) * _ROWS)
            count, unbounded = block[..., 0], block[..., -1]
            missing[chunk] = (count + unbounded < self.each).any(axis=1)
            infinite[chunk] = (unbounded > 0).any(axis=1)
        return missing, infinite

    def _blocks(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self.rows), _ROWS):
            yield np.take(self.table, self.rows[start : start + _ROWS], axis=0)


class Remembered:
    """Moments of images, where each image is measured when it is first needed and then remembered.

    Args:
        gather: Function from row numbers to the values of these images, (N, *shape).
        count: Number of images.
        shape: Shape of one image.
        dtype: Dtype of the values.
    """

    def __init__(
        self,
        gather: Callable[[NDArray[np.int64]], NDArray[Any]],
        count: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._gather = gather
        self._each = math.prod(shape[1:])
        self._step = max(1, CHUNK_VALUES // math.prod(shape))
        self._kept = np.empty((count, shape[0], KEPT), dtype=kept_dtype(dtype))
        self._known = np.zeros(count, dtype=np.bool_)

    def of(self, rows: NDArray[np.int64]) -> Kept:
        """The moments of these rows; images not measured before are read now."""
        missing = np.unique(rows[~self._known[rows]])
        for start in range(0, len(missing), self._step):
            chunk = missing[start : start + self._step]
            self._kept[chunk] = tally_images(self._gather(chunk))
        self._known[missing] = True
        return Kept(self._kept, rows, self._each)

"""Count, mean, spread and extremes of every band: measured per image, summed over any of them.

What is kept of one band of one image are six numbers: how many values are finite, their sum and sum
of squares, the lowest, the highest, and how many are at the top of their range. Of values up to 16
bits all six are whole numbers, so that sums of them are exact and it does not matter how images are
cut into parts. Of other values the mean and the squared deviations from it are kept instead of the
sums, which would lose a small spread far from zero (Chan, Golub and LeVeque, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CHUNK_VALUES = 4_000_000  # per step: 32 MB in float64
CONSTANT = 1e-7  # spread relative to the largest value under which a band is called constant
KEPT: Final = 6  # numbers per band and image

_BLOCK = 2**20  # values of a band that are widened at once
_ROWS = 2**16  # images whose numbers are summed at once


@dataclass(frozen=True)
class BandStatistics:
    """One entry per band (per feature for embeddings), over finite values only."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]  # of the population; 1 for a constant band, so dividing is safe
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    count: NDArray[np.int64]  # finite values
    nonfinite: NDArray[np.float64]  # share of NaN and infinite values
    saturated: NDArray[np.float64]  # share at the top value of an integer dtype; 0 for floats
    constant: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain lists for JSON; None where a band has no finite value."""
        return {
            name: [None if value != value else value for value in np.asarray(column).tolist()]
            if isinstance(column := getattr(self, name), np.ndarray)
            else list(column)
            for name in self.__dataclass_fields__
        }


class Moments:
    """What was measured so far, per band: of any values, in any order."""

    def __init__(self, bands: int) -> None:
        self.seen = np.zeros(bands, dtype=np.int64)
        self.minimum = np.full(bands, np.inf)
        self.maximum = np.full(bands, -np.inf)
        self.top = np.zeros(bands, dtype=np.int64)
        # Of whole values: count, sum, sum of squares, as Python's own numbers, which have no end.
        self._whole = np.zeros((3, bands), dtype=object)
        # Of others: count, mean, squared deviations.
        self._real = np.zeros((3, bands))

    @property
    def count(self) -> NDArray[np.int64]:
        """Finite values."""
        count: NDArray[np.int64] = (self._whole[0] + self._real[0]).astype(np.int64)
        return count

    def add(self, values: NDArray[Any]) -> None:
        """Take in values (N, bands, ...)."""
        if values.size:
            flat = np.ascontiguousarray(np.moveaxis(values, 1, 0)).reshape(1, values.shape[1], -1)
            self.take(tally(flat), flat.shape[-1])

    def take(self, kept: NDArray[Any], each: int) -> None:
        """Take in what `tally` found of N images (N, bands, 6) with `each` values in a band."""
        if not len(kept):
            return
        count, middle, spread, low, high, top = np.moveaxis(kept, -1, 0)
        self.seen += len(kept) * each
        self.top += top.sum(axis=0).astype(np.int64)
        self.minimum = np.minimum(self.minimum, low.min(axis=0))
        self.maximum = np.maximum(self.maximum, high.max(axis=0))
        every = count.sum(axis=0)
        if kept.dtype.kind == "i":
            # Squares of one image fit into 64 bits, those of half a million need not.
            upper, lower = (spread >> 32).sum(axis=0), (spread & 2**32 - 1).sum(axis=0)
            squares = upper.astype(object) * 2**32 + lower.astype(object)
            self._whole = self._whole + np.stack([every, middle.sum(axis=0), squares])
            return
        mean = middle[0] + (count * (middle - middle[0])).sum(axis=0) / np.maximum(every, 1)
        squares = spread.sum(axis=0) + (count * (middle - mean) ** 2).sum(axis=0)
        self._real = _joined(self._real, np.stack([every, mean, squares]))

    def merge(self, other: Moments) -> None:
        """Take in what another one has measured."""
        self.seen += other.seen
        self.top += other.top
        self.minimum = np.minimum(self.minimum, other.minimum)
        self.maximum = np.maximum(self.maximum, other.maximum)
        self._whole = self._whole + other._whole
        self._real = _joined(self._real, other._real)

    def statistics(self, bands: Sequence[str]) -> BandStatistics:
        """What was measured so far; `bands` are named in the notes."""
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
            nonfinite=(self.seen - count) / seen,
            saturated=self.top / seen,
            constant=constant,
            notes=tuple(notes),
        )

    def _centred(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and sum of squared deviations."""
        count, total, squares = self._whole
        if not count.any():
            return self._real[1], self._real[2]
        least = np.maximum(count, 1)
        # Python divides whole numbers of any length and rounds once, at the end.
        whole = np.stack([count, total / least, (count * squares - total**2) / least])
        whole = whole.astype(np.float64)
        both = _joined(self._real, whole) if self._real[0].any() else whole
        return both[1], both[2]


def _joined(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count, mean and squared deviations of both."""
    (count, mean, squares), (more, other, deviations) = one, two
    total = np.maximum(count + more, 1)
    delta = other - mean
    joined = squares + deviations + delta**2 * count * more / total
    return np.stack([count + more, mean + delta * more / total, joined])


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What `tally` answers for values of this kind."""
    whole = dtype.kind in "iu" and dtype.itemsize <= 2  # the squares of wider ones do not fit
    return np.dtype(np.int64 if whole else np.float64)


def tally(values: NDArray[Any]) -> NDArray[Any]:
    """The six numbers of the module's docstring over the last axis: (..., n) to (..., 6)."""
    found = np.zeros((*values.shape[:-1], KEPT), dtype=kept_dtype(values.dtype))
    count, middle, spread, low, high, top = np.moveaxis(found, -1, 0)
    if found.dtype.kind == "i":
        count[...] = values.shape[-1]
        low[...], high[...] = values.min(axis=-1), values.max(axis=-1)
        for start in range(0, values.shape[-1], _BLOCK):
            wide = values[..., start : start + _BLOCK].astype(np.int64)
            middle += wide.sum(axis=-1)
            spread += np.einsum("...n,...n->...", wide, wide)
    else:
        wide = values.astype(np.float64)
        good = np.isfinite(wide)
        if good.all():
            count[...] = values.shape[-1]
            middle[...] = wide.mean(axis=-1)
            low[...], high[...] = wide.min(axis=-1), wide.max(axis=-1)
            wide -= middle[..., None]
        else:
            count[...] = good.sum(axis=-1)
            middle[...] = wide.sum(axis=-1, where=good) / np.maximum(count, 1)
            low[...] = wide.min(axis=-1, where=good, initial=np.inf)
            high[...] = wide.max(axis=-1, where=good, initial=-np.inf)
            wide = np.where(good, wide - middle[..., None], 0.0)
        spread[...] = np.einsum("...n,...n->...", wide, wide)
    if values.dtype.kind in "iu":
        most = np.iinfo(values.dtype).max
        if (high == most).any():
            top[...] = np.count_nonzero(values == most, axis=-1)
    return found


def tally_images(images: NDArray[Any]) -> NDArray[Any]:
    """Of every band of every image: (N, bands, ...) to (N, bands, 6)."""
    return tally(images.reshape(*images.shape[:2], -1))


def summed(kept: NDArray[Any], rows: NDArray[np.int64], each: int) -> Moments:
    """The moments of some images, of all of which (N, bands, 6) is kept."""
    moments = Moments(kept.shape[1])
    for start in range(0, len(rows), _ROWS):
        moments.take(np.take(kept, rows[start : start + _ROWS], axis=0), each)
    return moments


class Remembered:
    """The moments of images, measured when they are first asked for.

    Args:
        gather: Row numbers to images, (N, *shape).
        count: How many images there are.
        shape: Of one image.
        dtype: Of its values.
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

    def of(self, rows: NDArray[np.int64]) -> Moments:
        """The moments of these rows."""
        missing = np.unique(rows[~self._known[rows]])
        for start in range(0, len(missing), self._step):
            chunk = missing[start : start + self._step]
            self._kept[chunk] = tally_images(self._gather(chunk))
        self._known[missing] = True
        return summed(self._kept, rows, self._each)

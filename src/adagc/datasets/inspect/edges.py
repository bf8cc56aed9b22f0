"""Find numbers that probably stand for missing values, such as -9999 among reflectances.

Such a number is the lowest or the highest of its band, occurs again and again, and is far from all
other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FREQUENT = 4  # times that a number must occur
_SHARE = 1e-5  # share of the values of its band that it must be
_LEVELS = 8  # different values that a band must have besides: masks and classes have fewer
_SAMPLE = 64  # values of a band that are kept for the usual range, per call of `add`
_MOST = 8192  # values of a band that are kept in all


@dataclass(frozen=True)
class Suspect:
    """A number that probably stands for missing values."""

    value: float
    bands: tuple[str, ...]
    share: float  # of the values of these bands


class Edges:
    """The lowest and highest values of every band, to which values can be added in any order."""

    def __init__(self, bands: int) -> None:
        self._seen = np.zeros(bands, dtype=np.int64)
        # Value, number of times it occurs, and the value next to it; the highest values are kept
        # with the opposite sign, so that both are treated alike.
        self._ends = [(np.full(bands, np.inf), np.zeros(bands, np.int64), np.full(bands, np.inf))]
        self._ends.append(self._ends[0])
        self._sample = np.zeros((bands, 0))  # some of the values, NaN where they are not finite

    def add(self, values: NDArray[Any]) -> None:
        """Add the values (N, bands, ...), of which only finite ones count."""
        # contiguous, as everything below is several times faster on such arrays
        flat = np.ascontiguousarray(np.moveaxis(values, 1, 0)).reshape(values.shape[1], -1)
        good = np.isfinite(flat) if flat.dtype.kind == "f" else None
        self._seen += flat.shape[1] if good is None else good.sum(axis=1)
        self._ends = [
            _joined(end, _end(flat, good, highest))
            for end, highest in zip(self._ends, (False, True), strict=True)
        ]
        sample = flat[:, :: max(1, flat.shape[1] // _SAMPLE)].astype(np.float64)
        self._take(np.where(np.isfinite(sample), sample, np.nan))

    def merge(self, other: Edges) -> None:
        """Add everything that `other` has seen."""
        self._seen += other._seen
        self._ends = [_joined(a, b) for a, b in zip(self._ends, other._ends, strict=True)]
        self._take(other._sample)

    def _take(self, sample: NDArray[np.float64]) -> None:
        """Add to the sample, and thin it out if it has become too large."""
        self._sample = np.concatenate([self._sample, sample], axis=1)
        if self._sample.shape[1] > _MOST:
            self._sample = self._sample[:, ::2].copy()

    def suspects(self, bands: Sequence[str]) -> tuple[Suspect, ...]:
        """The numbers that probably stand for missing values; `bands` are the names of the bands.

        A number is far from the others if the step to the next one is more than half of the range
        in which 98 % of the others lie.
        """
        found: dict[float, list[int]] = {}
        for band, sample in enumerate(self._sample):
            ends = [-self._ends[1][0][band], self._ends[0][0][band]]
            rest = sample[~np.isin(sample, ends) & ~np.isnan(sample)]
            if len(np.unique(rest)) < _LEVELS:
                continue
            usual = np.subtract(*np.percentile(rest, (99, 1)))
            for sign, (value, count, after) in zip((1, -1), self._ends, strict=True):
                often = count[band] >= max(_FREQUENT, _SHARE * self._seen[band])
                if often and after[band] - value[band] > usual / 2:
                    found.setdefault(sign * float(value[band]), []).append(band)
        return tuple(self._suspect(value, own, bands) for value, own in found.items())

    def _suspect(self, value: float, own: list[int], bands: Sequence[str]) -> Suspect:
        counts = sum(
            int(count[band])
            for sign, (end, count, _) in zip((1, -1), self._ends, strict=True)
            for band in own
            if sign * end[band] == value
        )
        share = counts / int(self._seen[own].sum())
        return Suspect(value, tuple(bands[band] for band in own), share)


_End = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def _end(flat: NDArray[Any], good: NDArray[np.bool_] | None, highest: bool) -> _End:
    """The lowest value of each band, how often it occurs, and the next one.

    Args:
        flat: (bands, n) values.
        good: Which of them count; None for all.
        highest: Look for the highest values instead, which are returned with the opposite sign.
    """
    whole = flat.dtype.kind in "iu"
    limits = np.iinfo(flat.dtype) if whole else np.finfo(flat.dtype)
    # Values that do not count are put at the other end, where they cannot be the extreme.
    other = flat.dtype.type(limits.min if highest else limits.max)
    extreme, sign = (np.max, -1) if highest else (np.min, 1)
    known = flat if good is None else np.where(good, flat, other)
    end = extreme(known, axis=1)
    same = known == end[:, None]
    after = extreme(np.where(same, other, known), axis=1)
    same = same if good is None else same & good
    total = flat.shape[1] if good is None else good.sum(axis=1)
    count = np.count_nonzero(same, axis=1)
    return (
        np.where(count > 0, sign * end.astype(np.float64), np.inf),
        count,
        np.where(count < total, sign * after.astype(np.float64), np.inf),
    )


def _joined(one: _End, two: _End) -> _End:
    """The lowest values of two sets of values, how often they occur, and the next ones."""
    low = np.minimum(one[0], two[0])
    count = np.where(one[0] == low, one[1], 0) + np.where(two[0] == low, two[1], 0)
    after = np.minimum(
        np.where(one[0] == low, one[2], one[0]), np.where(two[0] == low, two[2], two[0])
    )
    return low, count, after

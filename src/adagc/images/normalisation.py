"""Mean and spread of every band, measured on the data rather than assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.images.base import SceneDataset

CHUNK_VALUES = 4_000_000  # per step: 32 MB in float64
CONSTANT = 1e-7  # spread relative to the largest value under which a band is called constant
SCALES = (255.0, 1_000.0, 10_000.0, 65_535.0)  # what values are commonly divided by


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
    """Running count, mean and squared deviation per band (Chan, Golub and LeVeque, 1979).

    Merging centred sums stays exact where a sum of squares would cancel: a band around 10,000
    that varies by 1.
    """

    def __init__(self, bands: int) -> None:
        self.seen = np.zeros(bands, dtype=np.int64)
        self.count = np.zeros(bands, dtype=np.int64)
        self.mean = np.zeros(bands)
        self.squares = np.zeros(bands)
        self.minimum = np.full(bands, np.inf)
        self.maximum = np.full(bands, -np.inf)
        self.top = np.zeros(bands, dtype=np.int64)

    def add(self, values: NDArray[Any]) -> None:
        """Take in values (N, bands, ...)."""
        if not values.size:
            return
        flat = np.ascontiguousarray(np.moveaxis(values, 1, 0)).reshape(values.shape[1], -1)
        self.seen += flat.shape[1]
        if values.dtype.kind in "iu":
            self.top += np.count_nonzero(flat == np.iinfo(values.dtype).max, axis=1)
        if values.dtype == np.uint8 and flat.shape[1] >= 256:
            self._add_bytes(flat)
        else:
            self._add_numbers(flat)

    def _add_bytes(self, flat: NDArray[np.uint8]) -> None:
        """By way of a histogram: several times faster, and exact."""
        histogram = np.stack([np.bincount(band, minlength=256) for band in flat])
        levels = np.arange(256.0)
        mean = histogram @ levels / flat.shape[1]
        squares = (histogram * (levels - mean[:, None]) ** 2).sum(axis=1)
        present = histogram > 0
        low, high = present.argmax(axis=1), 255 - present[:, ::-1].argmax(axis=1)
        count = np.full(len(flat), flat.shape[1], dtype=np.int64)
        self._merge(count, mean, squares, low.astype(np.float64), high.astype(np.float64))

    def _add_numbers(self, flat: NDArray[Any]) -> None:
        work = flat.astype(np.float64)
        good = np.isfinite(work)
        if good.all():
            count = np.full(len(work), work.shape[1], dtype=np.int64)
            mean, low, high = work.mean(axis=1), work.min(axis=1), work.max(axis=1)
            work -= mean[:, None]
        else:
            count = good.sum(axis=1)
            mean = work.sum(axis=1, where=good) / np.maximum(count, 1)
            low = work.min(axis=1, where=good, initial=np.inf)
            high = work.max(axis=1, where=good, initial=-np.inf)
            work = np.where(good, work - mean[:, None], 0.0)
        self._merge(count, mean, np.einsum("bn,bn->b", work, work), low, high)

    def merge(self, other: Moments) -> None:
        """Take in what another one has measured."""
        self.seen += other.seen
        self.top += other.top
        self._merge(other.count, other.mean, other.squares, other.minimum, other.maximum)

    def _merge(
        self,
        count: NDArray[np.int64],
        mean: NDArray[np.float64],
        squares: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
    ) -> None:
        total = np.maximum(self.count + count, 1)
        delta = mean - self.mean
        self.mean = self.mean + delta * count / total
        self.squares = self.squares + squares + delta**2 * self.count * count / total
        self.count = self.count + count
        self.minimum = np.minimum(self.minimum, low)
        self.maximum = np.maximum(self.maximum, high)

    def statistics(self, bands: Sequence[str]) -> BandStatistics:
        """What was measured so far; `bands` are named in the notes."""
        empty = self.count == 0
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        size = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
        with np.errstate(invalid="ignore"):
            constant = ~empty & ((spread <= CONSTANT * size) | (self.minimum == self.maximum))
        notes = [f"band {bands[b]} is constant" for b in np.flatnonzero(constant).tolist()]
        notes += [f"band {bands[b]} has no finite value" for b in np.flatnonzero(empty).tolist()]
        seen = np.maximum(self.seen, 1)
        return BandStatistics(
            mean=self.mean,
            std=np.where(constant | empty, 1.0, spread),
            minimum=np.where(empty, np.nan, self.minimum),
            maximum=np.where(empty, np.nan, self.maximum),
            count=self.count,
            nonfinite=(self.seen - self.count) / seen,
            saturated=self.top / seen,
            constant=constant,
            notes=tuple(notes),
        )


def measure(
    images: SceneDataset, rows: NDArray[np.int64], *, limit: int | None = None
) -> BandStatistics:
    """Statistics per band over these rows, one chunk in memory at a time.

    Args:
        images: The images.
        rows: Those to measure; training rows, so that nothing of the others leaks in.
        limit: At most so many images, evenly spread over `rows`.
    """
    rows = np.asarray(rows, dtype=np.int64)
    if limit is not None and len(rows) > limit:
        rows = rows[np.linspace(0, len(rows) - 1, limit).round().astype(np.int64)]
    moments = Moments(images.shape[0])
    step = max(1, CHUNK_VALUES // int(np.prod(images.shape)))
    for start in range(0, len(rows), step):
        moments.add(images.gather(rows[start : start + step]))
    return moments.statistics(images.bands)


def far_from_unit(
    images: SceneDataset,
    rows: NDArray[np.int64],
    mean: ArrayLike,
    std: ArrayLike,
    *,
    limit: int = 256,
) -> list[str]:
    """Warnings where values normalised with the given statistics are not of unit scale."""
    return unit_warnings(measure(images, rows, limit=limit), images.bands, mean, std)


def unit_warnings(
    measured: BandStatistics, bands: Sequence[str], mean: ArrayLike, std: ArrayLike
) -> list[str]:
    """One line per band whose mean is beyond 1 or whose spread is outside [0.2, 5].

    A last line says what would bring the values to scale, if one of the usual mistakes would.
    """
    mean, std = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(std, float))
    wrong = next((s.size for s in (mean, std) if s.shape != measured.mean.shape), None)
    if wrong is not None:
        return [f"statistics of {wrong} bands for images of {len(bands)}: use those of these bands"]
    far = _far(measured, mean, std, 1.0)
    if not far.any():
        return []
    spread = np.where(measured.constant, 0.0, measured.std)
    warnings = [
        f"band {bands[b]}: after normalising, mean {(measured.mean[b] - mean[b]) / std[b]:.3g} and "
        f"spread {spread[b] / std[b]:.3g} instead of 0 and 1"
        for b in np.flatnonzero(far).tolist()
    ]
    for factor in SCALES:
        for scale, remedy in ((1 / factor, "divide"), (factor, "multiply")):
            if not _far(measured, mean, std, scale).any():
                return [*warnings, f"the statistics fit if you {remedy} the values by {factor:g}"]
    if not _far(measured, mean[::-1], std[::-1], 1.0).any():
        warnings.append("the statistics fit in reverse order: are the bands blue-first?")
    return warnings


def _far(
    measured: BandStatistics, mean: NDArray[np.float64], std: NDArray[np.float64], scale: float
) -> NDArray[np.bool_]:
    """Which bands are off when values are first multiplied by `scale`; constant ones by mean."""
    centre = np.abs((measured.mean * scale - mean) / std)
    spread = measured.std * scale / std
    off: NDArray[np.bool_] = (centre > 1) | (~measured.constant & ((spread < 0.2) | (spread > 5)))
    return off & (measured.count > 0)

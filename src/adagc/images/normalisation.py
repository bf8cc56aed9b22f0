"""Measure mean and spread of every band, and check statistics that are meant to normalise them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.images.base import SceneDataset
from adagc.images.moments import CHUNK_VALUES, BandStatistics, Moments
from adagc.progress import tracked

SCALES = (255.0, 1_000.0, 10_000.0, 65_535.0)  # factors by which values are commonly divided


def measure(
    images: SceneDataset, rows: NDArray[np.int64], *, limit: int | None = None
) -> BandStatistics:
    """Statistics per band over these rows; pixels are read only if their moments are not known.

    Args:
        images: The images.
        rows: Which images to measure. For normalisation use training rows only, so that validation
            and test images do not influence it.
        limit: Largest number of images to measure, evenly spread over `rows`; None for all.
    """
    rows = np.asarray(rows, dtype=np.int64)
    if limit is not None and len(rows) > limit:
        rows = rows[np.linspace(0, len(rows) - 1, limit).round().astype(np.int64)]
    moments = images.moments(rows)
    if moments is None:
        moments = Moments(images.shape[0])
        step = max(1, CHUNK_VALUES // int(np.prod(images.shape)))
        for start in tracked(range(0, len(rows), step), "measuring the bands"):
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
    """Warn if images normalised with the given statistics are far from mean 0 and deviation 1.

    Args:
        images: The images.
        rows: Which images to check.
        mean: Mean that is subtracted, one value per band.
        std: Standard deviation that is divided by, one value per band.
        limit: Largest number of images to check, evenly spread over `rows`.
    """
    return unit_warnings(measure(images, rows, limit=limit), images.bands, mean, std)


def unit_warnings(
    measured: BandStatistics, bands: Sequence[str], mean: ArrayLike, std: ArrayLike
) -> list[str]:
    """One line per band whose normalised mean exceeds 1 or whose spread is outside [0.2, 5].

    If a usual mistake explains it (values of another scale, bands in reverse order), a last line
    says how to correct it.
    """
    mean, std = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(std, float))
    given = next((s.size for s in (mean, std) if s.shape != measured.mean.shape), None)
    if given is not None:
        return [f"statistics of {given} bands for images of {len(bands)}: use those of these bands"]
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
    """Which bands are far from mean 0 and spread 1 if values are first multiplied by `scale`.

    A constant band is judged by its mean only; a band without finite values is never far.
    """
    centre = np.abs((measured.mean * scale - mean) / std)
    spread = measured.std * scale / std
    off: NDArray[np.bool_] = (centre > 1) | (~measured.constant & ((spread < 0.2) | (spread > 5)))
    return off & (measured.count > 0)

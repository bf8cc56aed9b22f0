"""Band statistics, one value after the other."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from adagc.images.base import SceneDataset


def band_statistics(images: np.ndarray) -> dict[str, list[float]]:
    """Mean, population spread, extremes and the share of values that are not finite, per band."""
    result: dict[str, list[float]] = {k: [] for k in ("mean", "std", "low", "high", "nonfinite")}
    for band in range(images.shape[1]):
        values = [float(v) for image in images for v in np.ravel(image[band])]
        finite = [v for v in values if math.isfinite(v)]
        mean = math.fsum(finite) / len(finite)
        result["mean"].append(mean)
        result["std"].append(math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / len(finite)))
        result["low"].append(min(finite))
        result["high"].append(max(finite))
        result["nonfinite"].append(1 - len(finite) / len(values))
    return result


def exact_moments(images: np.ndarray) -> list[tuple[Fraction, Fraction]]:
    """Mean and sum of squared deviations of the finite values of every band, without rounding."""
    found = []
    for band in range(images.shape[1]):
        values = [float(v) for image in images for v in np.ravel(image[band])]
        finite = [Fraction(v) for v in values if math.isfinite(v)]
        mean = sum(finite, Fraction(0)) / max(len(finite), 1)
        found.append((mean, sum(((v - mean) ** 2 for v in finite), Fraction(0))))
    return found


def running_statistics(images: SceneDataset, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread as they were measured before moments were kept: 4 million values a time."""
    count, mean, squares = 0, np.zeros(images.shape[0]), np.zeros(images.shape[0])
    step = max(1, 4_000_000 // math.prod(images.shape))
    for start in range(0, len(rows), step):
        chunk = np.moveaxis(images.gather(rows[start : start + step]), 1, 0)
        flat = chunk.reshape(len(mean), -1).astype(np.float64)
        here = flat.mean(axis=1)
        total = count + flat.shape[1]
        delta = here - mean
        squares = squares + ((flat - here[:, None]) ** 2).sum(axis=1)
        squares = squares + delta**2 * count * flat.shape[1] / total
        mean = mean + delta * flat.shape[1] / total
        count = total
    return mean, np.sqrt(squares / count)

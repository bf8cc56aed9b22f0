"""Band statistics, one value after the other."""

from __future__ import annotations

import math

import numpy as np


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

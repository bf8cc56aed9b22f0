"""What arrays of predictions and observed labels must be like."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError

FEW_LABELS = 50  # fewer say little about the three numbers of a calibration


def checked(
    probabilities: ArrayLike, observed: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Both as arrays; DataError if they do not fit each other or nothing can be learnt."""
    scores, seen = np.asarray(probabilities, dtype=np.float64), np.asarray(observed)
    if seen.ndim != 2 or seen.shape != scores.shape:
        raise DataError(
            f"observed labels are {seen.shape} and probabilities are {scores.shape}: both must be"
            " (images, classes)"
        )
    if not np.isfinite(scores).all() or not (scores >= 0).all():
        raise DataError("probabilities must be finite and not negative: pass those of a network")
    if not (seen > 0).any():
        raise DataError("no image has an observed label: frequencies are estimated from them")
    return scores, seen

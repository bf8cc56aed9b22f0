"""Bring bands of 20 and 60 m to the 120 pixels per side of the bands of 10 m, whole batches at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adagc.images.bigearthnet.bands import SIDE

Resample = Literal["nearest", "bicubic"]
RESAMPLE: Final[tuple[Resample, ...]] = get_args(Resample)
# Nearest repeats every value, so that none is lost, and the published networks of reBEN were
# trained with it.
DEFAULT: Final[Resample] = "nearest"
_SHARPNESS = -0.75  # of the cubic, as in torch and OpenCV


def enlarge(values: NDArray[np.uint16], out: NDArray[np.generic], how: Resample) -> None:
    """Write bands (N, side, side) into `out`, (N, 120, 120), of any strides.

    Bicubic values are rounded to whole numbers, the unit of Sentinel-2, and kept within 16 bits, so
    that every form of a data set has the same ones.
    """
    count, side = values.shape[0], values.shape[-1]
    if side == SIDE:
        out[...] = values
    elif how == "nearest":
        # As a view, so that every value is written to its place at once.
        times = SIDE // side
        rows = np.repeat(values, times, axis=2)  # the short axis first: whole rows are copied next
        for step in range(times):
            out[:, step::times] = rows
    else:
        weights = bicubic(side)
        wide = values.astype(np.float32).reshape(-1, side) @ weights.T
        tall = np.matmul(weights, wide.reshape(count, side, SIDE))
        np.rint(tall, out=tall)
        np.clip(tall, 0, np.iinfo(np.uint16).max, out=tall)
        out[...] = tall


@lru_cache
def bicubic(side: int) -> NDArray[np.float32]:
    """The share of each of `side` pixels in each of 120, (120, side); beyond the edge it repeats.

    The same as `torch.nn.functional.interpolate(mode="bicubic", align_corners=False)`.
    """
    centres = (np.arange(SIDE) + 0.5) * side / SIDE - 0.5
    first = np.floor(centres).astype(np.int64) - 1
    shares = np.zeros((SIDE, side))
    a = _SHARPNESS
    for tap in range(4):
        d = np.abs(centres - (first + tap))
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        pixel = np.clip(first + tap, 0, side - 1)
        np.add.at(shares, (np.arange(SIDE), pixel), np.where(d <= 1, near, far))
    return shares.astype(np.float32)

"""Bring bands of 20 and 60 m to the 120 pixels per side of those of 10 m, in whole batches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adagc.images.bigearthnet.bands import SIDE

Resample = Literal["nearest", "bicubic"]
RESAMPLE: Final[tuple[Resample, ...]] = get_args(Resample)
# Nearest repeats every value, so that none is lost, and the published networks of reBEN were
# trained with it.
DEFAULT: Final[Resample] = "nearest"
_SHARPNESS = -0.75  # of the cubic, as in torch and OpenCV
_PATCHES = 8  # that are enlarged together: what is half done stays in the processor's cache


def enlarge(values: NDArray[np.uint16], out: NDArray[np.generic], how: Resample) -> None:
    """Write bands (N, side, side) into `out`, (N, 120, 120), of any strides.

    Bicubic values are rounded to whole numbers, the unit of Sentinel-2, and kept within 16 bits, so
    that every form of a data set has the same ones.
    """
    count, side = values.shape[0], values.shape[-1]
    if side == SIDE:
        out[...] = values
    elif how == "nearest":
        times = SIDE // side
        # The short axis first: whole rows are copied next.
        rows = _repeated(values.astype(out.dtype), times)
        for step in range(times):
            out[:, step::times] = rows
    else:
        for start in range(0, count, _PATCHES):
            part = slice(start, start + _PATCHES)
            tall = _cubic(values[part].astype(np.float32), 1)
            whole = _cubic(tall, 2)
            np.rint(whole, out=whole)
            np.clip(whole, 0, np.iinfo(np.uint16).max, out=whole)
            out[part] = whole


def _repeated(values: NDArray[Any], times: int) -> NDArray[Any]:
    """Every value `times` times along the last axis."""
    if times != 2:
        return values.repeat(times, axis=-1)
    # Both copies at once, as one number of twice the width.
    width = 8 * values.itemsize
    wide = values.view(f"u{values.itemsize}").astype(f"u{2 * values.itemsize}")
    wide |= wide << wide.dtype.type(width)
    return wide.view(values.dtype)


def _cubic(values: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Enlarge one axis of (N, rows, columns) to 120.

    Sums of the four pixels that count, always in the same order, instead of matrix products: so the
    same patch has the same bits in every batch and on every machine, and small products are not
    shared among threads that wait for each other.
    """
    side = values.shape[axis]
    times = SIDE // side
    padding = [(0, 0), (0, 0), (0, 0)]
    padding[axis] = (2, 2)
    padded = np.moveaxis(np.pad(values, padding, mode="edge"), axis, 0)
    shape = list(values.shape)
    shape[axis] = SIDE
    out = np.empty(shape, dtype=np.float32)
    along = np.moveaxis(out, axis, 0)
    product = np.empty_like(padded[:side])
    for phase, (first, weights) in enumerate(phases(times)):
        target = np.multiply(padded[first : first + side], weights[0])
        for tap in range(1, 4):
            taken = padded[first + tap : first + tap + side]
            target += np.multiply(taken, weights[tap], out=product)
        along[phase::times] = target
    return out


@lru_cache
def phases(times: int) -> tuple[tuple[int, NDArray[np.float32]], ...]:
    """For each of the `times` new pixels of an old one: where its four taps begin, their weights.

    Taps count from two pixels before the old one, and pixels beyond the edge repeat it: the same as
    `torch.nn.functional.interpolate(mode="bicubic", align_corners=False)`.
    """
    found = []
    a = _SHARPNESS
    for phase in range(times):
        centre = (phase + 0.5) / times - 0.5  # in old pixels, from the centre of the old one
        before = int(np.floor(centre))
        d = np.abs(centre - before - np.arange(-1, 3))
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        found.append((before + 1, np.where(d <= 1, near, far).astype(np.float32)))
    return tuple(found)

"""Bring bands of 20 and 60 m to the 120 pixels per side of those of 10 m, in whole batches."""

from __future__ import annotations

from collections.abc import Iterator
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
_MARGIN = 2  # pixels beyond each edge that the taps of a bicubic value may reach


def enlarge(values: NDArray[np.uint16], out: NDArray[np.generic], how: Resample) -> None:
    """Write bands (N, side, side) into `out`, (N, 120, 120), of any strides.

    Bicubic values are rounded to whole numbers, the unit of Sentinel-2, and kept within 16 bits, so
    that every form of a data set has the same ones.
    """
    count, side = values.shape[0], values.shape[-1]
    if side == SIDE:
        out[...] = values
        return
    write = _nearest if how == "nearest" else _cubic
    for start in range(0, count, _PATCHES):
        part = slice(start, start + _PATCHES)
        write(values[part], out[part], SIDE // side)


def _nearest(values: NDArray[np.uint16], out: NDArray[np.generic], times: int) -> None:
    # The short axis first: whole rows are copied next.
    rows = _repeated(values.astype(out.dtype), times)
    for step in range(times):
        out[:, step::times] = rows


def _repeated(values: NDArray[Any], times: int) -> NDArray[Any]:
    """Every value `times` times along the last axis."""
    if times != 2:
        return values.repeat(times, axis=-1)
    # Both copies at once, as one number of twice the width.
    width = 8 * values.itemsize
    wide = values.view(f"u{values.itemsize}").astype(f"u{2 * values.itemsize}")
    wide |= wide << wide.dtype.type(width)
    return wide.view(values.dtype)


def _cubic(values: NDArray[np.uint16], out: NDArray[np.generic], times: int) -> None:
    """Enlarge along rows, then along columns, as torch does."""
    side = values.shape[-1]
    padded = _padded(values)
    wide = np.empty((*padded.shape[:2], SIDE), dtype=np.float32)
    for phase, sums in enumerate(_interpolated(padded, 1, times)):
        wide[:, :, phase::times] = sums[:, :, :side]
    for phase, sums in enumerate(_interpolated(wide, SIDE, times)):
        whole = sums[:, :side]
        np.clip(whole, 0, np.iinfo(np.uint16).max, out=whole)
        np.rint(whole, out=out[:, phase::times], casting="unsafe")


def _padded(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    """As floats, with the pixels at every edge repeated beyond it."""
    count, side = values.shape[0], values.shape[-1]
    padded = np.empty((count, side + 2 * _MARGIN, side + 2 * _MARGIN), dtype=np.float32)
    inside = padded[:, _MARGIN:-_MARGIN]
    inside[:, :, _MARGIN:-_MARGIN] = values
    inside[:, :, :_MARGIN] = values[:, :, :1]
    inside[:, :, -_MARGIN:] = values[:, :, -1:]
    padded[:, :_MARGIN] = inside[:, :1]
    padded[:, -_MARGIN:] = inside[:, -1:]
    return padded


def _interpolated(
    values: NDArray[np.float32], step: int, times: int
) -> Iterator[NDArray[np.float32]]:
    """For every phase, each value interpolated with its neighbours, in an array that is reused.

    Neighbours are `step` numbers apart in memory, so that every sum is one of long runs of numbers;
    what lies in the margin of the result means nothing. Sums of the four values that count, always
    in the same order, instead of matrix products: so a patch has the same bits in every batch and
    on every machine, and small products are not shared among threads that wait for each other.
    """
    flat = values.reshape(-1)
    length = len(flat) - 2 * _MARGIN * step
    # Phases to the left and right of a pixel have the same weights, in reverse order.
    products: dict[float, NDArray[np.float32]] = {}

    def product(weight: np.float32, tap: int) -> NDArray[np.float32]:
        if float(weight) not in products:
            products[float(weight)] = flat * weight
        return products[float(weight)][tap * step : tap * step + length]

    found = np.empty_like(flat)
    sums = found[:length]
    for first, weights in phases(times):
        taps = [product(weight, first + tap) for tap, weight in enumerate(weights)]
        np.add(taps[0], taps[1], out=sums)
        np.add(sums, taps[2], out=sums)
        np.add(sums, taps[3], out=sums)
        yield found.reshape(values.shape)


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

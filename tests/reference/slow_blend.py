"""Blending as its definition says: pixel by pixel, window by window."""

from __future__ import annotations

import math

import numpy as np


def slow_starts(length: int, window: int, stride: int) -> list[int]:
    if length <= window:
        return [0]
    found = []
    start = 0
    while start + window <= length:
        found.append(start)
        start += stride
    if found[-1] + window < length:
        found.append(length - window)
    return found


def slow_blend(
    height: int,
    width: int,
    window: tuple[int, int],
    stride: tuple[int, int],
    vectors: np.ndarray,  # (rows of windows, columns of windows, C), NaN: no data
    cell: int,
) -> np.ndarray:
    """The map (cells down, cells across, C)."""
    tops = slow_starts(height, window[0], stride[0])
    lefts = slow_starts(width, window[1], stride[1])
    shape = (math.ceil(height / cell), math.ceil(width / cell), vectors.shape[2])
    total, weights = np.zeros(shape), np.zeros(shape[:2])
    for i, top in enumerate(tops):
        for j, left in enumerate(lefts):
            if np.isnan(vectors[i, j]).any():
                continue
            for y in range(top, min(top + window[0], height)):
                for x in range(left, min(left + window[1], width)):
                    down = 2 * min(y - top, top + window[0] - 1 - y) + 1
                    across = 2 * min(x - left, left + window[1] - 1 - x) + 1
                    total[y // cell, x // cell] += down * across * vectors[i, j]
                    weights[y // cell, x // cell] += down * across
    with np.errstate(invalid="ignore"):
        return total / weights[..., None]

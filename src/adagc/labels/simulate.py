"""Simulate single labels: keep a random true class of each image, or the one that covers most.

The choice depends on the seed and on the order of the rows: image i uses the i-th random number, so
that the labels of other images do not matter, but a table in another order gives other labels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError
from adagc.labels.checks import positives

Seed = int | np.random.Generator

# Pixels that are counted at once, which limits the memory for any number of maps.
_BLOCK = 1 << 22


def simulate_random(truth: ArrayLike, seed: Seed) -> NDArray[np.int8]:
    """Choose one of the true classes of each image, all with the same probability.

    Args:
        truth: (N, C) complete labels.
        seed: Seed of the choice, or a generator.

    Returns:
        (N, C), +1 for the chosen class and 0 elsewhere; zeros for an image without classes.

    >>> simulate_random([[0, 1, 0], [0, 0, 0]], seed=1)
    array([[0, 1, 0],
           [0, 0, 0]], dtype=int8)
    """
    present = positives(truth, "truth")
    rank = present.cumsum(axis=1, dtype=np.int32)  # 1 at the first true class, 2 at the second ...
    count = rank[:, -1] if present.shape[1] else np.zeros(len(present), dtype=np.int32)
    # Every image uses one random number, even without a choice, so that rows are independent.
    pick = (np.random.default_rng(seed).random(len(present)) * count).astype(np.int32)
    observed: NDArray[np.int8] = np.zeros(present.shape, dtype=np.int8)
    rows = np.flatnonzero(count)
    if rows.size:
        chosen = (rank[rows] > pick[rows, None]).argmax(axis=1)
        observed[rows, chosen] = 1
    return observed


def simulate_dominant(areas: ArrayLike, seed: Seed) -> NDArray[np.int8]:
    """Choose the class that covers the largest area of each image.

    Among classes of exactly the same area the choice is random.

    Args:
        areas: (N, C) area of each class on each image, as a share or in pixels.
        seed: Seed of the choice between equal areas, or a generator.

    Returns:
        (N, C), +1 for the chosen class and 0 elsewhere; zeros for an image that no class covers.
    """
    covered = np.asarray(areas)
    if covered.ndim != 2:
        raise ValueError(f"areas must have the shape (images, classes), not {covered.shape}")
    if not np.issubdtype(covered.dtype, np.number) or not np.isfinite(covered).all():
        raise ValueError("areas must be finite numbers")
    if (covered < 0).any():
        raise ValueError("areas must not be negative")
    largest = covered.max(axis=1, keepdims=True, initial=0)
    return simulate_random((covered == largest) & (largest > 0), seed)


def areas_from_maps(
    maps: NDArray[np.integer], classes_count: int, *, ignore: int | Iterable[int] = ()
) -> NDArray[np.float32]:
    """Share of each image's pixels that each class covers, (N, C).

    Args:
        maps: (N, H, W) class of each pixel, 0 to C - 1; may be memory-mapped.
        classes_count: Number of classes C.
        ignore: Values that mean "no class" (unlabelled, clouds). Such pixels count for no class
            but belong to the image, so a row may sum to less than 1.

    Raises:
        DataError: A map holds a value that is neither a class nor ignored.
    """
    if maps.ndim != 3 or not np.issubdtype(maps.dtype, np.integer):
        raise ValueError(f"maps must be integers of shape (N, H, W), not {maps.dtype} {maps.shape}")
    count, pixels = len(maps), maps.shape[1] * maps.shape[2]
    ignored = np.array([ignore] if isinstance(ignore, int) else list(ignore), dtype=np.int64)
    areas: NDArray[np.float32] = np.zeros((count, classes_count), dtype=np.float32)
    step = max(1, _BLOCK // max(pixels, 1))
    for start in range(0, count, step):
        block = np.asarray(maps[start : start + step]).reshape(-1, pixels).astype(np.int64)
        counted = ~np.isin(block, ignored)
        invalid = counted & ((block < 0) | (block >= classes_count))
        if invalid.any():
            row, pixel = np.argwhere(invalid)[0].tolist()
            raise DataError(
                f"class map {start + row} holds the value {block[row, pixel]}, which is no class "
                f"(0 to {classes_count - 1}); name it in `ignore` if it means 'no class'"
            )
        # one bincount for all images of the block: class c of image i is bin i * C + c
        bins = block + np.arange(len(block))[:, None] * classes_count
        totals = np.bincount(bins[counted], minlength=len(block) * classes_count)
        areas[start : start + step] = totals.reshape(len(block), classes_count) / pixels
    return areas

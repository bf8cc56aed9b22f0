"""Which pixels of a block have values: the share of every window, and which cells of a map."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.windows.blend import cells
from adagc.windows.grid import Grid


def known_pixels(values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """(H, W): where at least one band has a value; None if all pixels do."""
    if values.dtype.kind != "f":
        return None
    missing = np.isnan(values[0])
    for band in values[1:]:
        if not missing.any():
            return None
        missing &= np.isnan(band)
    return ~missing if missing.any() else None


def shares(grid: Grid, block: int, known: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """(n,) share of the pixels of every window that have values; pixels beyond the scene do not."""
    top, left, height, width = grid.box(block)
    places = grid.places(block) - (top, left)
    ends = np.minimum(places + grid.window, (height, width))
    if known is None:
        counts = (ends - places).prod(axis=1)
    else:
        # Sums over all pixels above and to the left: those of any box are four look-ups.
        sums = np.zeros((height + 1, width + 1), dtype=np.int64)
        np.cumsum(np.cumsum(known, axis=0, dtype=np.int64), axis=1, out=sums[1:, 1:])
        (y, x), (down, right) = places.T, ends.T
        counts = sums[down, right] - sums[y, right] - sums[down, x] + sums[y, x]
    found: NDArray[np.float32] = (counts / math.prod(grid.window)).astype(np.float32)
    return found


def own_cells(grid: Grid, block: int, cell: int) -> tuple[range, range]:
    """Rows and columns of the cells that have pixels of which this block is in charge.

    That is from its first window to the first one of the next block, or to the end of the scene.
    """
    (top, bottom), (left, right) = _own(grid, block)
    return (
        range(top // cell, cells(bottom, cell)),
        range(left // cell, cells(right, cell)),
    )


def known_cells(
    grid: Grid, block: int, cell: int, known: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Which of `own_cells` have a pixel with a value."""
    rows, columns = own_cells(grid, block, cell)
    if known is None:
        return np.ones((len(rows), len(columns)), dtype=np.bool_)
    (top, bottom), (left, right) = _own(grid, block)
    first_row, first_column = grid.box(block)[:2]
    own = known[top - first_row : bottom - first_row, left - first_column : right - first_column]
    down = np.maximum(np.arange(rows.start, rows.stop) * cell - top, 0)
    across = np.maximum(np.arange(columns.start, columns.stop) * cell - left, 0)
    found: NDArray[np.bool_] = np.logical_or.reduceat(
        np.logical_or.reduceat(own, down, axis=0), across, axis=1
    )
    return found


def _own(grid: Grid, block: int) -> tuple[tuple[int, int], tuple[int, int]]:
    rows, columns = grid.members(block)
    top, left, height, width = grid.box(block)
    below = int(grid.tops[rows.stop]) if rows.stop < len(grid.tops) else grid.height
    beyond = int(grid.lefts[columns.stop]) if columns.stop < len(grid.lefts) else grid.width
    return (top, min(below, top + height)), (left, min(beyond, left + width))

"""From one vector per window to a field: where windows overlap, their vectors are blended.

A pixel belongs to all windows k that cover it. The weight w_k of a window is largest in its middle
and falls linearly to its edges (a tent, the product of one down and one across), and the field is

    f(x) = sum_k w_k(x) p_k / sum_k w_k(x),

so that the weights of a pixel add up to one and a constant stays constant. Windows without data
have no weight. A map has cells of `cell` x `cell` pixels, and a cell has the mean of its pixels'
numerators over the mean of their denominators; with cells of one pixel it is f itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from adagc.windows.grid import Grid


def tent(length: int) -> NDArray[np.float64]:
    """Weights along one side of a window: 1, 3, 5, ..., 5, 3, 1; none is zero."""
    place = np.arange(length, dtype=np.float64)
    return 2 * np.minimum(place, length - 1 - place) + 1


def cells(length: int, cell: int) -> int:
    """Number of cells along a side; the last one may reach beyond the scene."""
    return math.ceil(length / cell)


def spans(
    begins: NDArray[np.int64], window: int, length: int, cell: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """First cell of every window, and its weight in that cell and the following ones.

    Args:
        begins: (K,) first pixel of every window.
        window: Length of a window.
        length: Length of the scene, beyond which nothing counts.
        cell: Length of a cell.

    Returns:
        (K,) and (K, m): sums of the window's tent over the pixels that it shares with a cell.
    """
    total = np.concatenate([[0.0], tent(window).cumsum()])
    end = np.minimum(window, length - begins)
    first = begins // cell
    most = int(((begins + end - 1) // cell - first).max()) + 1
    edges = (first[:, None] + np.arange(most + 1)) * cell - begins[:, None]
    return first, np.diff(total[edges.clip(0, end[:, None])], axis=1)


def blended(
    grid: Grid, cell: int, classes: int, row: Callable[[int], NDArray[np.float32]]
) -> Iterator[NDArray[np.float32]]:
    """The rows of the map, from top to bottom, (columns, C) each; NaN where no window has data.

    Args:
        grid: The windows.
        cell: Side of a cell in pixels.
        classes: C, the length of a vector.
        row: Gives the vectors of the i-th row of windows, (columns of windows, C); NaN for a
            window without data. It is called once for every row, in order.
    """
    across = cells(grid.width, cell)
    left, right = spans(grid.lefts, grid.window[1], grid.width, cell)
    top, down = spans(grid.tops, grid.window[0], grid.height, cell)
    active: dict[int, NDArray[np.float64]] = {}  # rows of windows that reach this row of cells
    coming = 0
    for at in range(cells(grid.height, cell)):
        while coming < len(top) and top[coming] <= at:
            active[coming] = _spread(row(coming), left, right, across, classes)
            coming += 1
        for old in [i for i in active if top[i] + down.shape[1] <= at]:
            del active[old]
        sums = np.zeros((across, classes + 1))
        for i, values in active.items():
            sums += down[i, at - top[i]] * values
        weight = sums[:, -1:]
        # A window that only touches a cell from far has a small weight, but never none.
        means = np.divide(sums[:, :-1], weight, out=np.full_like(sums[:, :-1], np.nan),
                          where=weight > 0)  # fmt: skip
        yield means.astype(np.float32)


def _spread(
    vectors: NDArray[np.float32],
    left: NDArray[np.int64],
    right: NDArray[np.float64],
    across: int,
    classes: int,
) -> NDArray[np.float64]:
    """(cells across, C + 1) weighted vectors of a row of windows, and their weights last."""
    sums = np.zeros((across, classes + 1))
    known = ~np.isnan(vectors).any(axis=1)
    content = np.ones((int(known.sum()), classes + 1))
    content[:, :-1] = vectors[known]
    begin, weights = left[known], right[known]
    for offset in range(weights.shape[1]):
        inside = begin + offset < across
        part = weights[inside, offset, None] * content[inside]
        np.add.at(sums, begin[inside] + offset, part)
    return sums

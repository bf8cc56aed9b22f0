"""Where the windows of a scene lie, and in which blocks they are read.

Windows begin every `stride` pixels. The last one of a row or column is shifted in, so that it ends
with the scene; only where the scene is smaller than a window does the window reach beyond it, to
the right and below, and the values there are missing. Windows that are read together form a block.
Blocks follow from the scene and the window alone: however many processes share them, the same
windows are predicted together, with the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Box = tuple[int, int, int, int]  # first row, first column, height, width, in pixels of the scene


def starts(length: int, window: int, stride: int) -> NDArray[np.int64]:
    """The first pixel of every window along one side of a scene.

    >>> starts(10, 4, 3).tolist(), starts(11, 4, 3).tolist(), starts(3, 4, 3).tolist()
    ([0, 3, 6], [0, 3, 6, 7], [0])
    """
    last = max(0, length - window)
    found = list(range(0, last + 1, stride))
    return np.array(found if found[-1] == last else [*found, last], dtype=np.int64)


@dataclass(frozen=True)
class Grid:
    """The windows of a scene; block b holds the windows `members(b)`, in rows and columns."""

    height: int  # of the scene, in pixels
    width: int
    window: tuple[int, int]  # height and width of a window, in pixels of the scene
    stride: tuple[int, int]  # from one window to the next, down and to the right
    together: tuple[int, int] = (1, 1)  # how many rows and columns of windows are a block

    @cached_property
    def tops(self) -> NDArray[np.int64]:
        """First pixel row of every row of windows."""
        return starts(self.height, self.window[0], self.stride[0])

    @cached_property
    def lefts(self) -> NDArray[np.int64]:
        """First pixel column of every column of windows."""
        return starts(self.width, self.window[1], self.stride[1])

    @property
    def windows(self) -> int:
        """Number of all windows."""
        return len(self.tops) * len(self.lefts)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of blocks."""
        rows, columns = self.together
        return math.ceil(len(self.tops) / rows), math.ceil(len(self.lefts) / columns)

    @property
    def blocks(self) -> int:
        """Number of all blocks."""
        return self.shape[0] * self.shape[1]

    def members(self, block: int) -> tuple[range, range]:
        """The rows and columns of windows in a block, whose windows are counted row by row."""
        row, column = divmod(block, self.shape[1])
        down, across = self.together
        return (
            range(row * down, min((row + 1) * down, len(self.tops))),
            range(column * across, min((column + 1) * across, len(self.lefts))),
        )

    def count(self, block: int) -> int:
        """Number of windows in a block."""
        rows, columns = self.members(block)
        return len(rows) * len(columns)

    def box(self, block: int) -> Box:
        """The pixels that the windows of a block cover, as far as they are in the scene."""
        rows, columns = self.members(block)
        top, left = int(self.tops[rows[0]]), int(self.lefts[columns[0]])
        bottom = min(int(self.tops[rows[-1]]) + self.window[0], self.height)
        right = min(int(self.lefts[columns[-1]]) + self.window[1], self.width)
        return top, left, bottom - top, right - left

    def places(self, block: int) -> NDArray[np.int64]:
        """(n, 2) first row and column of every window of a block, in pixels of the scene."""
        rows, columns = self.members(block)
        tops = np.repeat(self.tops[rows.start : rows.stop], len(columns))
        return np.stack([tops, np.tile(self.lefts[columns.start : columns.stop], len(rows))], 1)


def share(
    height: int,
    width: int,
    window: tuple[int, int],
    stride: tuple[int, int],
    *,
    bands: int,
    across: bool,
    most: int = 1 << 25,
) -> Grid:
    """The grid of a scene, with blocks of at most `most` values, or of one window.

    Args:
        height: Height of the scene.
        width: Its width.
        window: Height and width of a window.
        stride: From one window to the next.
        bands: Bands that are read.
        across: Prefer blocks as wide as the scene, for files that are stored in whole lines. They
            may have four times as many values: to decode all lines again for every block costs
            more than that memory.
        most: Number of values in a block.
    """
    plain = Grid(height, width, window, stride)
    down, right = len(plain.tops), len(plain.lefts)
    pixels = most // bands
    if across and window[0] * width <= 4 * pixels:
        rows = 1 + max(0, pixels // width - window[0]) // stride[0]
        return Grid(height, width, window, stride, (min(rows, down), right))
    side = math.isqrt(pixels)
    rows = 1 + max(0, side - window[0]) // stride[0]
    columns = 1 + max(0, side - window[1]) // stride[1]
    return Grid(height, width, window, stride, (min(rows, down), min(columns, right)))

"""A scene as a source: its windows, in blocks that lie beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.decode import resize
from adagc.windows.grid import Grid
from adagc.windows.pixels import known_cells, known_pixels, own_cells, shares
from adagc.windows.scene import Scene


@dataclass(frozen=True)
class Part:
    """The values of a block of windows, which may overlap."""

    grid: Grid
    block: int
    side: tuple[int, int]  # height and width of the model's input
    values: NDArray[Any]  # (bands, height, width) of the pixels that the windows cover
    known: NDArray[np.float32]
    mask: bytes

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Block.gather`; what lies beyond the scene is missing."""
        height, width = self.grid.window
        top, left = self.grid.box(self.block)[:2]
        found = np.empty((len(rows), len(self.values), *self.side), dtype=np.float32)
        for number, (y, x) in enumerate(self.grid.places(self.block)[rows] - (top, left)):
            patch = self.values[:, y : y + height, x : x + width]
            if patch.shape[1:] == self.side:
                found[number] = patch
            elif self.grid.window == self.side:
                found[number] = np.nan
                found[number, :, : patch.shape[1], : patch.shape[2]] = patch
            else:
                found[number] = resize(_padded(patch, self.grid.window), self.side[0])
        return found


class SceneWindows:
    """The windows of a scene.

    Args:
        scene: The scene.
        grid: Where its windows lie.
        numbers: The bands that the model gets, counted from 0.
        side: Height and width of the model's input, to which windows are resized.
        cell: Side of a cell of the map that is wanted, in pixels; None without a map.
    """

    unit = "windows"

    def __init__(
        self,
        scene: Scene,
        grid: Grid,
        numbers: Sequence[int],
        side: tuple[int, int],
        cell: int | None = None,
    ) -> None:
        self.scene, self.grid, self.cell = scene, grid, cell
        self._numbers, self._side = tuple(numbers), side

    @cached_property
    def counts(self) -> list[int]:
        """See `Source.counts`."""
        return [self.grid.count(block) for block in range(self.grid.blocks)]

    @cached_property
    def extra(self) -> list[int]:
        """See `Source.extra`; a bit per cell of the map."""
        if self.cell is None:
            return [0] * self.grid.blocks
        sizes = (own_cells(self.grid, block, self.cell) for block in range(self.grid.blocks))
        return [-(-len(rows) * len(columns) // 8) for rows, columns in sizes]

    @property
    def stamp(self) -> tuple[object, ...]:
        """See `Source.stamp`."""
        return (self.scene.stamp, self.scene.more, self.grid, self._numbers, self._side, self.cell)

    def read(self, block: int) -> Part:
        """See `Source.read`."""
        values = self.scene.read(self.grid.box(block), self._numbers)
        known = known_pixels(values)
        mask = b""
        if self.cell is not None:
            mask = np.packbits(known_cells(self.grid, block, self.cell, known)).tobytes()
        share = shares(self.grid, block, known)
        return Part(self.grid, block, self._side, values, share, mask)


def _padded(patch: NDArray[Any], window: tuple[int, int]) -> NDArray[Any]:
    """The patch with missing values to the right and below, where a window leaves the scene."""
    if patch.shape[1:] == window:
        return patch
    whole = np.full((len(patch), *window), np.nan, np.promote_types(patch.dtype, np.float16))
    whole[:, : patch.shape[1], : patch.shape[2]] = patch
    return whole

"""Results as a map: the probabilities of windows blended into the cells of a raster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc._version import __version__
from adagc.limits import Thresholds
from adagc.prediction.journal import Records
from adagc.prediction.scenes import SceneWindows
from adagc.prediction.work import Result
from adagc.progress import meter
from adagc.windows.blend import blended, cells
from adagc.windows.grid import Grid
from adagc.windows.pixels import own_cells
from adagc.windows.raster import Layout, write_cog


@dataclass(frozen=True)
class Mapped:
    """A map that was written."""

    out: Path
    windows: int  # all windows of the scene
    without: int  # windows without data among them
    seconds: float = 0.0


UNKNOWN = 255  # in a map of decisions: no data


def write_map(
    path: Path,
    windows: SceneWindows,
    records: Records,
    classes: Sequence[str],
    thresholds: Thresholds,
    *,
    decisions: bool = False,
) -> Mapped:
    """Write a band per class; memory does not grow with the scene.

    Args:
        path: The file.
        windows: The windows that were predicted.
        records: Their results.
        classes: Names of the classes.
        thresholds: From which probability on each class is decided; stored with its band.
        decisions: Write 1 where a class is decided and 0 elsewhere, instead of probabilities.

    Returns:
        What was written.
    """
    scene, grid, cell = windows.scene, windows.grid, windows.cell
    assert cell is not None
    height, width = cells(grid.height, cell), cells(grid.width, cell)
    layout = Layout(
        height=height,
        width=width,
        names=classes,
        transform=scene.scaled(cell),
        crs=scene.crs,
        dtype="uint8" if decisions else "float32",
        nodata=UNKNOWN if decisions else np.nan,
        tags={
            "software": f"adagc {__version__}",
            "window": f"{grid.window[0]} x {grid.window[1]} pixels",
            "stride": f"{grid.stride[0]} pixels",
            "thresholds": thresholds.words,
        },
        band_tags=[{"threshold": f"{limit:.7g}"} for limit in thresholds.values],
    )
    limits = np.array(thresholds.values, dtype=np.float32)
    results = _Results(windows, records, len(classes))

    def rows() -> Iterator[NDArray[np.float32] | NDArray[np.uint8]]:
        with meter("writing the map", height, unit="rows") as shown:
            for at, row in enumerate(blended(grid, cell, len(classes), results.row)):
                row[~results.known(at)] = np.nan
                yield _decided(row, limits) if decisions else row
                shown.advance()

    write_cog(path, layout, rows())
    return Mapped(path, grid.windows, results.empty())


def _decided(row: NDArray[np.float32], thresholds: NDArray[np.float32]) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = (row >= thresholds).astype(np.uint8)
    found[np.isnan(row)] = UNKNOWN
    return found


class _Results:
    """Results by rows of windows and by rows of cells, read a row of blocks at a time."""

    def __init__(self, windows: SceneWindows, records: Records, classes: int) -> None:
        self._windows, self._records, self._classes = windows, records, classes
        self._vectors: tuple[int, NDArray[np.float32]] | None = None  # of a row of blocks
        self._masks: dict[int, tuple[range, NDArray[np.bool_]]] = {}  # by row of blocks

    @property
    def _grid(self) -> Grid:
        return self._windows.grid

    def row(self, number: int) -> NDArray[np.float32]:
        """The probabilities of a row of windows."""
        blocks, inside = divmod(number, self._grid.together[0])
        if self._vectors is None or self._vectors[0] != blocks:
            parts = []
            for block in self._blocks(blocks):
                rows, columns = self._grid.members(block)
                found = self._read(block).numbers
                parts.append(found.reshape(len(rows), len(columns), self._classes))
            self._vectors = blocks, np.concatenate(parts, axis=1)
        vectors: NDArray[np.float32] = self._vectors[1][inside]
        return vectors

    def known(self, number: int) -> NDArray[np.bool_]:
        """Which cells of a row of cells have a pixel with a value."""
        cell = self._windows.cell
        assert cell is not None
        across = cells(self._grid.width, cell)
        found = np.zeros(across, dtype=np.bool_)
        for blocks in range(self._grid.shape[0]):
            first = self._blocks(blocks)[0]
            rows, _ = own_cells(self._grid, first, cell)
            if number >= rows.stop:
                self._masks.pop(blocks, None)
            elif number in rows:
                found |= self._mask(blocks, rows, across)[number - rows.start]
            elif number < rows.start:
                break
        return found

    def empty(self) -> int:
        """Number of windows without data."""
        blocks = range(self._grid.blocks)
        return sum(int((self._read(block).known == 0).sum()) for block in blocks)

    def _mask(self, blocks: int, rows: range, across: int) -> NDArray[np.bool_]:
        if blocks not in self._masks:
            whole = np.zeros((len(rows), across), dtype=np.bool_)
            cell = self._windows.cell
            assert cell is not None
            for block in self._blocks(blocks):
                _, columns = own_cells(self._grid, block, cell)
                bits = np.frombuffer(self._read(block).mask, dtype=np.uint8)
                flat = np.unpackbits(bits, count=len(rows) * len(columns)).astype(np.bool_)
                whole[:, columns.start : columns.stop] |= flat.reshape(len(rows), len(columns))
            self._masks[blocks] = rows, whole
        return self._masks[blocks][1]

    def _blocks(self, row: int) -> range:
        across = self._grid.shape[1]
        return range(row * across, (row + 1) * across)

    def _read(self, block: int) -> Result:
        record = self._records.read(block)
        return Result.unpacked(record, self._grid.count(block), self._classes)

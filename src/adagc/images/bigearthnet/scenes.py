"""Patches of BigEarthNet as images that can be trained on, from any form they are in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset
from adagc.images.bigearthnet.bands import SIDE, depth_of
from adagc.images.bigearthnet.measured import combined, flaws
from adagc.images.bigearthnet.resample import Resample
from adagc.images.bigearthnet.sources import Source, TreeSource
from adagc.images.footprint import Place, file_place, footprints
from adagc.images.memory import Recycled
from adagc.images.moments import Moments


class PatchScenes(SceneDataset):
    """Patches of 120 x 120 pixels.

    Radar values are decibels as 32-bit floats, bit for bit those of the files; optical values are
    whole numbers. Without radar bands the images are 16-bit integers.

    Args:
        source: Where the pixels come from.
        names: Name of each optical patch.
        bands: Names of the bands to read, in this order.
        resample: How bands of 20 and 60 m are enlarged.
        records: Moments of each patch, if they are kept: see `images.bigearthnet.measured`.
        rows: The record of each patch.
        notes: What else there is to say about them.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        bands: Sequence[str],
        *,
        resample: Resample,
        records: NDArray[np.void] | None = None,
        rows: NDArray[np.int64] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.source, self.resample = source, resample
        self.names, self.bands = tuple(names), tuple(bands)
        self.shape = (len(self.bands), SIDE, SIDE)
        self.dtype = depth_of(self.bands)
        self._records, self._rows = records, rows
        self._notes = tuple(notes)
        self._memory = Recycled()

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`."""
        out = self._memory.empty((len(rows), *self.shape), self.dtype)
        self.source.fill(np.asarray(rows), self.bands, self.resample, out)
        return out

    @property
    def notes(self) -> tuple[str, ...]:
        """See `SceneDataset.notes`."""
        return self._notes

    def remark(self, sentence: str) -> None:
        """Add a sentence to `notes`."""
        self._notes = (*self._notes, sentence)

    def geometry(self, rows: NDArray[np.int64]) -> list[bytes | None]:
        """See `SceneDataset.geometry`; only GeoTIFF files say where they lie."""
        outlines = self._outlines[0]
        return [outlines[row] for row in rows.tolist()]

    def place(self, row: int) -> Place | None:
        """See `SceneDataset.place`; no other file is opened for it."""
        file = self._file(row)
        return None if file is None else file_place(file)

    @property
    def crs(self) -> str | None:
        """See `SceneDataset.crs`."""
        return self._outlines[1]

    @cached_property
    def _outlines(self) -> tuple[list[bytes | None], str | None]:
        files = [file for row in range(len(self)) if (file := self._file(row)) is not None]
        return footprints(files) if files else ([None] * len(self), None)

    def _file(self, row: int) -> Path | None:
        """A GeoTIFF file of a patch, where patches are such files."""
        return self.source.file(row, self.bands[0]) if isinstance(self.source, TreeSource) else None

    @property
    def side(self) -> int:
        """See `SceneDataset.side`."""
        return SIDE

    def moments(self, rows: NDArray[np.int64]) -> Moments | None:
        """See `SceneDataset.moments`; no pixel is read where they are kept."""
        if self._records is None:
            return super().moments(rows)
        return combined(self._records, self._kept(rows), self.bands)

    def flaws(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """See `SceneDataset.flaws`."""
        if self._records is None:
            return super().flaws(rows)
        return flaws(self._records, self._kept(rows), self.bands)

    def _kept(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(rows if self._rows is None else self._rows[rows])

    def __getstate__(self) -> dict[str, Any]:
        # A mapped file would be sent to a worker process as a whole; workers ask for pixels only.
        return {**self.__dict__, "_records": None}

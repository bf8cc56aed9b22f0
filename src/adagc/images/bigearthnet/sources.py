"""Where the pixels of patches come from: what all forms share, and the tree of GeoTIFFs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.bigearthnet.bands import RADAR, SIDE, SIDES, stored
from adagc.images.bigearthnet.plain import read_band
from adagc.images.bigearthnet.resample import Resample, enlarge

_AT_ONCE = (
    64  # patches that are enlarged together: their coarse bands stay in the processor's cache
)


class Source(ABC):
    """The pixels of patches by row number."""

    form: str  # what this form is called, in a few words

    @abstractmethod
    def fill(
        self,
        rows: NDArray[np.int64],
        bands: Sequence[str],
        resample: Resample,
        out: NDArray[Any],
    ) -> None:
        """Write these bands of these patches into `out`, (len(rows), len(bands), 120, 120).

        Args:
            rows: Row numbers of the patches.
            bands: Names of the bands, in the order of the second axis of `out`.
            resample: How bands of 20 and 60 m are enlarged, where they are stored as published.
            out: Of a dtype that holds the values of all these bands.
        """

    @abstractmethod
    def chosen(self, rows: NDArray[np.int64]) -> Source:
        """The same with these patches only."""


class NativeSource(Source):
    """A form that keeps every band in its own resolution, patch by patch."""

    @abstractmethod
    def patch(self, row: int, bands: Sequence[str]) -> Sequence[NDArray[Any]]:
        """The values of these bands of one patch, (side, side) each, in the order of `bands`.

        Raises:
            DataError: A band of the patch is missing, cannot be read or has another shape. The
                message begins with the file or the name of the patch.
        """

    def fill(
        self,
        rows: NDArray[np.int64],
        bands: Sequence[str],
        resample: Resample,
        out: NDArray[Any],
    ) -> None:
        """See `Source.fill`."""
        coarse = [place for place, band in enumerate(bands) if SIDES[band] != SIDE]
        step = min(_AT_ONCE, max(len(rows), 1))
        waiting = {
            place: np.empty((step, SIDES[bands[place]], SIDES[bands[place]]), np.uint16)
            for place in coarse
        }
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step].tolist()
            for number, row in enumerate(chunk):
                image = out[start + number]
                for place, values in enumerate(self.patch(row, bands)):
                    target = waiting.get(place)
                    if target is None:
                        image[place] = values
                    else:
                        target[number] = values
            part = out[start : start + len(chunk)]
            for place in coarse:
                enlarge(waiting[place][: len(chunk)], part[:, place], resample)


def checked(values: NDArray[Any], band: str, place: str) -> NDArray[Any]:
    """The values of a band if they have its shape and dtype; else a DataError that says where."""
    shape, dtype = (SIDES[band],) * 2, stored(band)
    if values.shape == shape and values.dtype == dtype:
        return values
    # Some tools write radar in 64 bits. Values must not change: anything else is refused.
    if values.shape == shape and values.dtype.kind == "f" == dtype.kind:
        narrow = values.astype(np.float32)
        if np.array_equal(narrow, values, equal_nan=True):
            return narrow
    size = " x ".join(map(str, values.shape))
    raise DataError(
        f"{place}: band {band} has {values.dtype} of {size} pixels instead of {dtype} of"
        f" {shape[0]} x {shape[1]}"
    )


class TreeSource(NativeSource):
    """The published folders of GeoTIFF files: one folder per patch, one file per band.

    Args:
        optical: Folder of the Sentinel-2 patches; None if they are not there.
        radar: Folder of the Sentinel-1 patches; None if they are not there.
        patches: Folder of each optical patch, relative to `optical`; its last part is its name.
        radar_patches: Folder of each radar patch, relative to `radar`.
    """

    form = "GeoTIFF files"

    def __init__(
        self,
        optical: Path | None,
        radar: Path | None,
        patches: Sequence[str],
        radar_patches: Sequence[str],
    ) -> None:
        self._folders: Mapping[bool, Path | None] = {False: optical, True: radar}
        self._patches = {False: patches, True: radar_patches}

    def chosen(self, rows: NDArray[np.int64]) -> TreeSource:
        """See `Source.chosen`."""
        optical, radar = ([own[row] for row in rows] for own in self._patches.values())
        return TreeSource(self._folders[False], self._folders[True], optical, radar)

    def patch(self, row: int, bands: Sequence[str]) -> list[NDArray[Any]]:
        """See `NativeSource.patch`."""
        files = [self.file(row, band) for band in bands]
        return [
            checked(read_band(file), band, str(file))
            for file, band in zip(files, bands, strict=True)
        ]

    def file(self, row: int, band: str) -> Path:
        """The file of a band of a patch."""
        is_radar = band in RADAR
        folder, place = self._folders[is_radar], self._patches[is_radar][row]
        if folder is None or not place:
            which = "Sentinel-1" if is_radar else "Sentinel-2"
            raise DataError(f"{place or row}: there is no {which} patch")
        return folder / place / f"{place.rpartition('/')[2]}_{band}.tif"

"""A scene in a file that GDAL reads: its bands, its place on the map, and values by boxes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, MissingExtraError
from adagc.images.missing import mark
from adagc.windows.grid import Box

# Decoded tiles that GDAL keeps, in MB. Its default is a share of the machine's memory.
_CACHE = 128


def rasterio_or_explain() -> Any:
    """The package rasterio, or an error that says how to install it."""
    try:
        import rasterio
    except ImportError as error:
        raise MissingExtraError("rasterio, which reads scenes and writes maps,", "geo") from error
    return rasterio


@contextmanager
def without_warnings() -> Iterator[None]:
    """Say nothing about files without coordinates, which are welcome."""
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


class Scene:
    """An open scene; a worker process that is handed one opens the file again.

    Args:
        path: A GeoTIFF, or any other file that GDAL reads.
        nodata: More numbers that stand for missing values, besides the one that the file names.
    """

    def __init__(self, path: Path, nodata: Sequence[float] = ()) -> None:
        self.path, self.more = Path(path), tuple(nodata)
        self._open()

    def _open(self) -> None:
        rasterio = rasterio_or_explain()
        from rasterio.errors import RasterioError

        if not self.path.exists():
            raise DataError(f"{self.path}: no such file; check the path")
        try:
            with rasterio.Env(GDAL_CACHEMAX=_CACHE), without_warnings():
                self._file = rasterio.open(self.path)
        except (RasterioError, OSError) as error:
            raise self._unreadable(error) from error
        self.height, self.width = int(self._file.height), int(self._file.width)
        self.transform = self._file.transform
        kinds = {np.dtype(_numpy(name)) for name in self._file.dtypes}
        self.dtype = np.result_type(*kinds)
        if self.dtype.kind not in "iuf":
            raise DataError(
                f"{self.path}: holds {self.dtype} values; save it as integers or real numbers"
            )

    @property
    def count(self) -> int:
        """Number of bands in the file."""
        return int(self._file.count)

    @property
    def names(self) -> tuple[str | None, ...]:
        """What the file calls its bands; None for a band without a name."""
        return tuple((text or "").strip() or None for text in self._file.descriptions)

    @property
    def colours(self) -> tuple[str | None, ...]:
        """What the bands are to be shown as: red, green, blue or alpha; None for any other."""
        usual = ("red", "green", "blue", "alpha")
        found = (colour.name for colour in self._file.colorinterp)
        return tuple(name if name in usual else None for name in found)

    @property
    def crs(self) -> str | None:
        """The reference system as text (EPSG:32633, or WKT where it has no number), if any."""
        found = self._file.crs
        if not found:
            return None
        number = found.to_epsg()
        return str(found.to_wkt()) if number is None else f"EPSG:{number}"

    @property
    def georeferenced(self) -> bool:
        """Whether pixels have coordinates."""
        return bool(self._file.crs) or not self.transform.is_identity

    def scaled(self, cell: int) -> Any:
        """From cells of `cell` x `cell` pixels to coordinates."""
        a, b, c, d, e, f = tuple(self.transform)[:6]
        return type(self.transform)(a * cell, b * cell, c, d * cell, e * cell, f)

    @property
    def in_lines(self) -> bool:
        """Whether the file is stored in whole lines, not in tiles."""
        return bool(self._file.block_shapes[0][1] >= self.width > 0)

    @property
    def stamp(self) -> tuple[str, int, int]:
        """Path, size and time of the file, by which a change is noticed."""
        stat = self.path.stat()
        return os.fspath(self.path.resolve()), stat.st_size, stat.st_mtime_ns

    def read(self, box: Box, bands: Sequence[int]) -> NDArray[Any]:
        """(len(bands), height, width) values of a box; missing ones are NaN.

        Args:
            box: Which pixels; all of them are in the scene.
            bands: Numbers of the bands, counted from 0, in the order of the result.
        """
        rasterio = rasterio_or_explain()
        from rasterio.errors import RasterioError
        from rasterio.windows import Window

        top, left, height, width = box
        window = Window(left, top, width, height)
        numbers = [band + 1 for band in bands]
        try:
            with rasterio.Env(GDAL_CACHEMAX=_CACHE):
                values: NDArray[Any] = self._file.read(numbers, window=window)
                masks = self._file.read_masks(1, window=window) if self._masked else None
        except (RasterioError, OSError) as error:
            raise self._unreadable(error) from error
        values = self._marked(values.astype(self.dtype, copy=False), bands)
        if masks is not None and not masks.all():
            values = values.astype(np.promote_types(values.dtype, np.float16), copy=False)
            values[:, masks == 0] = np.nan
        if values.dtype.kind == "f" and np.isinf(values).any():
            # The network would pass them on to all its outputs; training refuses them.
            values = np.where(np.isinf(values), np.nan, values)
        return values

    @cached_property
    def _masked(self) -> bool:
        """Whether the file has a mask of its own, apart from a number for missing values."""
        from rasterio.enums import MaskFlags

        flags = self._file.mask_flag_enums[0]
        return MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags

    def _marked(self, values: NDArray[Any], bands: Sequence[int]) -> NDArray[Any]:
        named = [self._file.nodatavals[band] for band in bands]
        if len(set(named)) == 1:
            return mark(values, [*filter(lambda n: n is not None, named[:1]), *self.more])
        marked = [
            mark(plane, [*([] if number is None else [number]), *self.more])
            for plane, number in zip(values, named, strict=True)
        ]
        return np.stack([plane.astype(np.result_type(*marked)) for plane in marked])

    def _unreadable(self, error: Exception) -> DataError:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split()).removeprefix(f"{self.path}: ")
        return DataError(f"{self.path}: cannot be read ({reason}); replace the file")

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "more": self.more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def _numpy(name: str) -> str:
    """What NumPy calls a type of GDAL's: integers of complex numbers it does not have."""
    return "complex64" if name.startswith("complex_int") else name

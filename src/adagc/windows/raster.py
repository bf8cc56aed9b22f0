"""Writing a map as a cloud-optimised GeoTIFF (COG): whole and checked, or not at all."""

from __future__ import annotations

import errno
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import no_space
from adagc.errors import AdagcError
from adagc.windows.scene import rasterio_or_explain, without_warnings

_TILE = 256  # pixels along a tile of the file
_CHUNK = 1 << 23  # values that are written at once


@dataclass(frozen=True)
class Layout:
    """What a map is, apart from its values."""

    height: int
    width: int
    names: Sequence[str]  # one per band
    transform: Any  # from pixels of the map to coordinates
    crs: str | None
    dtype: str  # float32 or uint8
    nodata: float
    tags: Mapping[str, str] = field(default_factory=dict)
    band_tags: Sequence[Mapping[str, str]] = ()


def write_cog(path: Path, layout: Layout, rows: Iterable[NDArray[Any]]) -> None:
    """Write the rows of a map, (width, bands) each, with overviews.

    The values take a constant amount of memory. They are written into a file under another name,
    copied into the form of a COG, and read again: GDAL reports some failed writes only in its log.
    """
    rasterio = rasterio_or_explain()
    from rasterio.errors import RasterioError
    from rasterio.shutil import copy

    with _hidden(path, 2) as (plain, final):
        try:
            with rasterio.Env(GDAL_CACHEMAX=64), without_warnings():
                written = _write_plain(rasterio, plain, layout, rows)
                exact = layout.dtype == "uint8"
                copy(
                    str(plain), str(final), driver="COG", blocksize=_TILE, compress="deflate",
                    predictor="yes", overview_resampling="nearest" if exact else "average",
                    bigtiff="if_safer",
                )  # fmt: skip
                plain.unlink()
                found = _checksums(rasterio, final, layout)
        except (RasterioError, OSError) as error:
            raise _explained(path, final, error) from error
        if found != written:
            raise _explained(path, final, None)
        final.replace(path)


def _write_plain(
    rasterio: Any, path: Path, layout: Layout, rows: Iterable[NDArray[Any]]
) -> list[int]:
    """Write the values line by line; the checksums of every chunk."""
    checks = []
    with rasterio.open(
        path, "w", driver="GTiff", height=layout.height, width=layout.width,
        count=len(layout.names), dtype=layout.dtype, crs=layout.crs, transform=layout.transform,
        nodata=layout.nodata, interleave="band", compress="deflate", zlevel=1, bigtiff="if_safer",
    ) as file:  # fmt: skip
        for number, name in enumerate(layout.names, 1):
            file.set_band_description(number, name)
        file.update_tags(**layout.tags)
        for number, tags in enumerate(layout.band_tags, 1):
            file.update_tags(number, **tags)
        first = 0
        for chunk in _chunks(rows, _lines(layout)):
            values = np.ascontiguousarray(np.moveaxis(chunk, 2, 0), dtype=layout.dtype)
            file.write(values, window=_window(layout, first, len(chunk)))
            checks.append(zlib.crc32(values.tobytes()))
            first += len(chunk)
    return checks


def _checksums(rasterio: Any, path: Path, layout: Layout) -> list[int]:
    checks, step = [], _lines(layout)
    with rasterio.open(path) as file:
        for first in range(0, layout.height, step):
            count = min(step, layout.height - first)
            values = file.read(window=_window(layout, first, count))
            checks.append(zlib.crc32(values.tobytes()))
    return checks


def _window(layout: Layout, first: int, count: int) -> Any:
    from rasterio.windows import Window

    return Window(0, first, layout.width, count)


def _lines(layout: Layout) -> int:
    """How many lines of the map are written at once: whole rows of tiles, if they fit."""
    return max(1, min(_TILE, _CHUNK // (layout.width * len(layout.names))))


def _chunks(rows: Iterable[NDArray[Any]], size: int) -> Iterator[NDArray[Any]]:
    kept: list[NDArray[Any]] = []
    for row in rows:
        kept.append(row)
        if len(kept) == size:
            yield np.stack(kept)
            kept = []
    if kept:
        yield np.stack(kept)


@contextmanager
def _hidden(path: Path, count: int) -> Iterator[list[Path]]:
    """Names of files beside the target, which are deleted in the end; those left before, too."""
    for old in path.parent.glob(f".{path.name}.*.tmp*"):
        old.unlink(missing_ok=True)
    made = [path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp") for _ in range(count)]
    try:
        yield made
    finally:
        for place in made:
            for left in path.parent.glob(f"{place.name}*"):  # GDAL adds .aux.xml or .ovr.tmp
                left.unlink(missing_ok=True)


def _explained(path: Path, part: Path, error: Exception | None) -> Exception:
    """The error for a map that could not be written."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return error
    free = shutil.disk_usage(path.parent).free
    size = part.stat().st_size if part.exists() else 0
    if free < max(1 << 20, size):  # GDAL does not say why a write failed
        full = no_space(OSError(errno.ENOSPC, "No space left on device"), path)
        if full is not None:
            return full
    cause = None if error is None else error.__cause__ or error
    reason = "it reads otherwise than written" if cause is None else " ".join(str(cause).split())
    return AdagcError(f"{path} cannot be written ({reason}): use another disk")

"""Where on earth image files lie: the corners of GeoTIFFs, as shapes in one reference system."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from adagc.progress import tracked

log = logging.getLogger(__name__)

_TIFFS = (".tif", ".tiff")
_COMMON = "EPSG:4326"  # of images that do not share a reference system, as from several UTM zones
_PLACED = (33550, 34264)  # TIFF tags of a scale and of a transformation to coordinates

Corners = tuple[tuple[float, float], ...]


def footprints(files: Sequence[Path]) -> tuple[list[bytes | None], str | None]:
    """The outline of each file as well-known binary, and the reference system of all outlines.

    That is the one of the files if they have one in common, else longitude and latitude. Files
    without a place have no outline. Needs rasterio if there is a GeoTIFF; without it a warning is
    logged and no file has an outline.
    """
    tiffs = [file for file in files if file.suffix.lower() in _TIFFS]
    if not tiffs:
        return [None] * len(files), None
    if find_spec("rasterio") is None:
        if _has_place(tiffs[0]):
            log.warning(
                "the places of GeoTIFFs are left out: rasterio is not installed; run  pip install"
                " 'adagc[geo]'"
            )
        return [None] * len(files), None
    found = {file: _corners(file) for file in tracked(tiffs, "reading places", unit="images")}
    systems = Counter(placed[1] for placed in found.values() if placed is not None)
    if not systems:
        return [None] * len(files), None
    common = next(iter(systems)) if len(systems) == 1 else _COMMON
    shapes: list[bytes | None] = []
    for file in files:
        placed = found.get(file)
        if placed is None:
            shapes.append(None)
            continue
        corners, system = placed
        shapes.append(polygon(corners if system == common else _moved(corners, system, common)))
    return shapes, common


def polygon(corners: Corners) -> bytes:
    """A polygon with these corners as well-known binary.

    >>> polygon(((0, 0), (1, 0), (1, 1))).hex()[:18]
    '010300000001000000'
    """
    ring = (*corners, corners[0])
    numbers = [number for corner in ring for number in corner]
    return struct.pack(f"<BIII{len(numbers)}d", 1, 3, 1, len(ring), *numbers)


def _corners(file: Path) -> tuple[Corners, str] | None:
    """The corners of a file and their reference system; None if it does not say where it lies."""
    import warnings

    import rasterio

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that have no place
            with rasterio.open(file) as opened:
                if opened.crs is None or opened.transform.is_identity:
                    return None
                width, height = opened.width, opened.height
                ends = ((0, 0), (width, 0), (width, height), (0, height))
                corners = tuple(opened.transform * end for end in ends)
                return corners, str(opened.crs.to_string())
    except rasterio.errors.RasterioError:  # our own decoder may read what GDAL does not
        return None


def _moved(corners: Corners, system: str, common: str) -> Corners:
    from rasterio.warp import transform

    xs, ys = transform(system, common, *zip(*corners, strict=True))
    return tuple(zip(xs, ys, strict=True))


def _has_place(file: Path) -> bool:
    import tifffile

    try:
        with tifffile.TiffFile(file) as opened:
            tags = opened.pages[0].tags
            return any(tag in tags for tag in _PLACED)
    except (OSError, tifffile.TiffFileError):
        return False

"""Where on earth image files lie: the corners of GeoTIFFs, as shapes in one reference system."""

from __future__ import annotations

import logging
import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from adagc.progress import tracked

log = logging.getLogger(__name__)

TIFFS = (".tif", ".tiff")
_COMMON = "EPSG:4326"  # of images that do not share a reference system, as from several UTM zones
_EARTH = 6_371_008.8  # mean radius in metres
_RING = 13  # bytes of a polygon as well-known binary before the numbers of its first ring
_PLACED = (33550, 34264)  # TIFF tags of a scale and of a transformation to coordinates

Corners = tuple[tuple[float, float], ...]


def footprints(files: Sequence[Path]) -> tuple[list[bytes | None], str | None]:
    """The outline of each file as well-known binary, and the reference system of all outlines.

    That is the one of the files if they have one in common, else longitude and latitude. Files
    without a place have no outline. Needs rasterio if there is a GeoTIFF; without it a warning is
    logged and no file has an outline.
    """
    tiffs = [file for file in files if file.suffix.lower() in TIFFS]
    if not tiffs:
        return [None] * len(files), None
    if find_spec("rasterio") is None:
        if _has_place(tiffs[0]):
            log.warning(
                "the places of GeoTIFFs are left out: rasterio is not installed; run  pip install"
                " 'adagc[geo]'"
            )
        return [None] * len(files), None
    found = {file: corners_of(file) for file in tracked(tiffs, "reading places", unit="images")}
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


@dataclass(frozen=True)
class Place:
    """Where on earth an image lies."""

    longitude: float  # of the centre, in degrees
    latitude: float
    width: float  # in metres, from west to east as the image is turned
    height: float


def file_place(file: Path) -> Place | None:
    """Where one file lies; None if it does not say, or rasterio is not installed."""
    if file.suffix.lower() not in TIFFS or find_spec("rasterio") is None:
        return None
    placed = corners_of(file)
    if placed is None:
        return None
    corners, system = placed
    return place_of(corners if system == _COMMON else _moved(corners, system, _COMMON))


def outline_place(outline: bytes | None, system: str | None) -> Place | None:
    """The place of a rectangle as well-known binary in a reference system; None of other shapes."""
    if outline is None or system is None or len(outline) < _RING + 4 * 16:
        return None
    order = "<" if outline[0] == 1 else ">"
    kind, rings, points = struct.unpack(f"{order}III", outline[1:_RING])
    if (kind, rings) != (3, 1) or points != 5 or len(outline) != _RING + 5 * 16:
        return None
    numbers = struct.unpack(f"{order}10d", outline[_RING:])
    corners = tuple(zip(numbers[0:8:2], numbers[1:8:2], strict=True))
    if system in (_COMMON, "OGC:CRS84"):
        return place_of(corners)
    return place_of(_moved(corners, system, _COMMON)) if find_spec("rasterio") else None


def place_of(corners: Corners) -> Place | None:
    """The place of an image with these corners in longitude and latitude.

    >>> place = place_of(((10, 1), (10.01, 1), (10.01, 0.99), (10, 0.99)))
    >>> round(place.longitude, 4), round(place.latitude, 4), round(place.width), round(place.height)
    (10.005, 0.995, 1113, 1112)
    """
    points = [point for corner in corners for point in corner]
    if not all(math.isfinite(point) for point in points):
        return None
    first, second, third, _ = corners
    longitude = sum(corner[0] for corner in corners) / 4
    latitude = sum(corner[1] for corner in corners) / 4
    return Place(longitude, latitude, _distance(first, second), _distance(second, third))


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Metres between two points of longitude and latitude, on a sphere."""
    (x1, y1), (x2, y2) = (tuple(map(math.radians, point)) for point in (one, other))
    half = math.sin((y2 - y1) / 2) ** 2
    half += math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * _EARTH * math.asin(math.sqrt(min(1.0, half)))


def corners_of(file: Path) -> tuple[Corners, str] | None:
    """The corners of a file and their reference system; None if it does not say where it lies.

    They begin with that of the first pixel and go on along the first row. Needs rasterio.
    """
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

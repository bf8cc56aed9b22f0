"""Splits by place: images that lie close together serve for the same purpose.

Scenes of one region look alike. If some of them train and their neighbours test, a score says how
well a network knows this region, not how well it will do elsewhere. So whole blocks of images are
divided: the cells of a grid in metres, or the tiles that names of Sentinel-2 products tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import combinations
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.splits import block_split
from adagc.errors import DataError, MissingExtraError, UsageError, examples
from adagc.images.base import SceneDataset
from adagc.tables.formats import require

_NEEDED: Final = ("pyproj", "shapely")
Rows = NDArray[np.int64]

# A tile of the grid that Sentinel-2 products are cut by: zone, band of latitude, square of 100 km.
_TILE: Final = re.compile(
    r"(?<![A-Za-z0-9])T?(\d{2}[C-HJ-NP-X][A-HJ-NP-Z][A-HJ-NP-V])(?![A-Za-z0-9])"
)


def read_place(text: str) -> float | Literal["tile"]:
    """What a split by place is by: the side of a block in metres, or tiles."""
    if text == "tile":
        return "tile"
    try:
        metres = float(text)
    except ValueError:
        metres = 0.0
    if not 0 < metres < float("inf"):
        raise UsageError(
            f"--split-by-place must be the side of a block in metres, or tile, not {text!r}"
        )
    return metres


def split_by_place(
    images: SceneDataset, by: float | Literal["tile"], shares: Mapping[str, float], seed: int
) -> tuple[dict[str, Rows], list[str]]:
    """Divide images so that no two parts share a block, and say how far apart the parts are.

    Args:
        images: The images.
        by: Side of a block in metres; or "tile" for blocks of the images whose names have the same
            Sentinel-2 tile, such as T33UUP.
        shares: Name of each part and its share of the images.
        seed: Seed of the choice which blocks go to which part.

    Raises:
        DataError: An image has no place (or no tile), or there are fewer blocks than parts.
    """
    places = None if by == "tile" else Places.of(images)
    blocks = _tiles(images.names) if places is None else places.blocks(float(by))
    kind = "tiles" if by == "tile" else f"blocks of {float(by):,.10g} m"
    parts = block_split(blocks, shares, seed)
    empty = [name for name, rows in parts.items() if not len(rows) and shares[name] > 0]
    if empty:
        count = len(np.unique(blocks))
        remedy = "a split file (--split)" if by == "tile" else "smaller blocks"
        raise DataError(
            f"all {len(images)} images lie in {count} {kind}, of which none is left for"
            f" {empty[0]}: use {remedy}"
        )
    if places is None and _told(images):
        places = Places.of(images)
    counts = ", ".join(f"{len(np.unique(blocks[rows]))} {name}" for name, rows in parts.items())
    apart = "" if places is None else f"; {places.apart(parts)}"
    return parts, [f"split by place into {kind} ({counts}){apart}"]


def _told(images: SceneDataset) -> bool:
    """Whether all images say where they lie, and nothing lacks that reads it."""
    if None in map(find_spec, _NEEDED):
        return False
    return None not in images.geometry(np.arange(len(images))) and images.crs is not None


@dataclass(frozen=True)
class Places:
    """The outlines of images in metres.

    Args:
        shapes: A polygon (or another shape) for each image.
    """

    shapes: NDArray[np.object_]

    @classmethod
    def of(cls, images: SceneDataset) -> Places:
        """The places of all images, moved to a reference system in metres if need be."""
        for package in _NEEDED:
            require(package)
        import shapely

        found = images.geometry(np.arange(len(images)))
        lacking = [images.names[i] for i, shape in enumerate(found) if shape is None]
        if lacking:
            if find_spec("rasterio") is None:
                raise MissingExtraError("rasterio, which reads where images lie,", "geo")
            raise DataError(
                f"{len(lacking)} of {len(found)} images do not say where on earth they lie"
                f" ({examples(lacking)}): a split by place needs GeoTIFFs or GeoParquet files with"
                " places, or names with tiles (--split-by-place tile)"
            )
        system = images.crs
        if system is None:
            raise DataError(
                "the places of the images have no coordinate reference system: write the files with"
                " one, or give a split file (--split)"
            )
        return cls(_in_metres(np.asarray(shapely.from_wkb(found)), system))

    def blocks(self, side: float) -> NDArray[np.int64]:
        """The cell of a grid that the centre of each image lies in, as a number."""
        import shapely

        centres = shapely.get_coordinates(shapely.centroid(self.shapes))
        cells = np.floor(centres / side).astype(np.int64)
        return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)

    def apart(self, parts: Mapping[str, Rows]) -> str:
        """How close images of different parts come to each other, in words."""
        least, pair = min(
            (self.distance(parts[one], parts[other]), (one, other))
            for one, other in combinations(parts, 2)
        )
        near = f"of {pair[0]} and {pair[1]}"
        if least == 0:
            return f"images {near} touch or overlap: the distance between parts is 0 m"
        return f"the distance between parts is {least:,.0f} m (images {near})"

    def distance(self, one: Rows, other: Rows) -> float:
        """The smallest distance in metres between two groups of images."""
        import shapely

        tree = shapely.STRtree(self.shapes[other])
        found = tree.query_nearest(self.shapes[one], return_distance=True, all_matches=False)
        return float(found[1].min(initial=np.inf))


def _in_metres(shapes: NDArray[np.object_], system: str) -> NDArray[np.object_]:
    """The shapes in their own reference system if its unit is the metre, else in one of their own.

    That is an equal-area projection around their middle: up to some 2,000 km from there lengths are
    right to 2 %.
    """
    import pyproj
    import shapely

    crs = pyproj.CRS.from_user_input(system)
    if crs.is_projected and all(axis.unit_conversion_factor == 1 for axis in crs.axis_info[:2]):
        return shapes

    def moved(transformer: Any, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(transformer.transform(points[:, 0], points[:, 1]), axis=1)

    to_degrees = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    points = moved(to_degrees, shapely.get_coordinates(shapes))
    # The middle as a direction from the centre of the earth, which is right at 180 degrees, too.
    east, north = np.radians(points).T
    x, y = (np.cos(north) * np.cos(east)).mean(), (np.cos(north) * np.sin(east)).mean()
    longitude = np.degrees(np.arctan2(y, x))
    latitude = np.degrees(np.arctan2(np.sin(north).mean(), np.hypot(x, y)))
    own = pyproj.CRS.from_proj4(
        f"+proj=laea +lat_0={latitude:.6f} +lon_0={longitude:.6f} +units=m +datum=WGS84"
    )
    to_metres = pyproj.Transformer.from_crs(crs, own, always_xy=True)
    placed: NDArray[np.object_] = np.asarray(shapely.transform(shapes, partial(moved, to_metres)))
    if not np.isfinite(shapely.get_coordinates(placed)).all():
        raise DataError(f"some places of the images lie outside of the earth in {system}")
    return placed


def _tiles(names: Sequence[str]) -> NDArray[np.int64]:
    """The Sentinel-2 tile in each name, as a number; of several the last one."""
    found = [_TILE.findall(name) for name in names]
    lacking = [name for name, tiles in zip(names, found, strict=True) if not tiles]
    if lacking:
        raise DataError(
            f"{len(lacking)} of {len(names)} names of images have no Sentinel-2 tile such as T33UUP"
            f" ({examples(lacking)}): give the side of blocks in metres instead"
            " (--split-by-place 5000), or a split file (--split)"
        )
    return np.unique([tiles[-1] for tiles in found], return_inverse=True)[1].astype(np.int64)


__all__ = ["Places", "read_place", "split_by_place"]

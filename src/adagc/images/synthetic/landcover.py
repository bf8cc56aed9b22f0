"""Land-cover maps of synthetic scenes: which classes occur together, their areas and positions.

A scene is a square of 1.2 km, like a BigEarthNet patch, sampled on `size` x `size` pixels: a larger
`size` shows the same landscape more finely. There are three steps, vectorised over scenes:

1. `compose` draws the classes of a scene from a Gaussian copula, so that each class has the wanted
   frequency and classes that are neighbours in the real world occur together (beach and sea,
   farmland and villages).
2. `compose` also draws the share of the area of each class; fields and forests are large, beaches
   and industry small.
3. `grow` gives every class, water and settlements first, the pixels where a smooth random surface
   of the class is highest. The surface determines the shape: rivers follow a contour line, beaches
   the shore, farmland the borders of parcels. The remaining pixels belong to the largest class.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adagc.images.synthetic.noise import Bytes, Floats, SceneNoise, pixel_centres, smooth


class Shape(NamedTuple):
    """Weights of the random surfaces whose sum decides which pixels a class gets."""

    broad: float = 0.0  # broad, medium, fine: surfaces of the class alone, at three scales
    medium: float = 0.0
    fine: float = 0.0
    coast: float = 0.0  # this and the following: surfaces that all classes of a scene share
    water: float = 0.0
    town: float = 0.0
    large_parcels: float = 0.0
    small_parcels: float = 0.0


class LandCover(NamedTuple):
    """How often a class occurs, how large it is and where it is placed."""

    name: str
    support: int  # images with the class among the TRAINING_IMAGES of refined BigEarthNet
    biome: tuple[float, float, float, float]  # loadings of the copula: coast, farm, south, wild
    extent: float  # typical area in scenes with the class, relative to other classes
    rank: int  # order of placement: 0 first; classes of the last rank divide the remaining pixels
    shape: Shape


TRAINING_IMAGES = 237_871
MEAN_CARDINALITY = 2.9
MINIMUM_AREA = 0.015  # a class below this share of the pixels is not labelled
_LEAST_PLANNED = 0.022  # smallest planned area of a class, clearly above MINIMUM_AREA
# Share of the scenes with sea that show nothing else. It is high because the flip rate of sea, when
# one label is chosen at random, is only 0.08.
_SEA_ALONE = 0.89
_GRIDS = (6, 9, 17)  # knots per side of the broad, medium and fine surfaces
_CELLS = 16  # number of strips, and of parcels per strip, before the pattern repeats

_WOODS = Shape(broad=1.0, medium=0.6, fine=0.2)
_OPEN = Shape(broad=1.0, medium=0.5, fine=0.3)
_SCRUB = Shape(broad=0.7, medium=0.8, fine=0.3)
_URBAN = Shape(medium=0.5, fine=0.5, town=1.0, small_parcels=0.4)
_WORKS = Shape(medium=0.5, fine=0.2, town=1.0, small_parcels=1.0)
_FIELDS = Shape(broad=0.7, large_parcels=1.3)
_GROVES = Shape(broad=0.7, small_parcels=1.2)
_MEADOWS = Shape(broad=0.8, medium=0.3, large_parcels=1.0)
_PATCHES = Shape(broad=0.8, medium=0.3, town=0.4, small_parcels=0.9)
_MOSAIC = Shape(broad=0.7, medium=0.5, fine=0.1, large_parcels=0.2, small_parcels=0.4)
_SHORE = Shape(medium=0.1, fine=0.1, coast=1.0)
_MARSH = Shape(broad=0.3, medium=0.3, fine=0.1, coast=1.0)
_MIRE = Shape(broad=0.3, medium=0.6, fine=0.1, coast=-0.3, water=0.9)
_LAKE = Shape(coast=-0.5, water=1.0)  # away from the sea
_LAND_AND_NATURE = (
    "Land principally occupied by agriculture, with significant areas of natural vegetation"
)
_GRASSLAND = "Natural grassland and sparsely vegetated areas"
_MOORS = "Moors, heathland and sclerophyllous vegetation"

LAND_COVER = (
    LandCover("Urban fabric", 33_626, (0.0, 0.45, 0.2, -0.3), 0.7, 6, _URBAN),
    LandCover("Industrial or commercial units", 6_398, (0.0, 0.4, 0.1, -0.5), 0.5, 5, _WORKS),
    LandCover("Arable land", 88_236, (-0.1, 0.65, 0.0, -0.4), 2.6, 7, _FIELDS),
    LandCover("Permanent crops", 15_190, (0.0, 0.3, 0.65, -0.1), 1.2, 7, _GROVES),
    LandCover("Pastures", 42_968, (0.0, 0.4, -0.35, 0.0), 1.8, 7, _MEADOWS),
    LandCover("Complex cultivation patterns", 51_034, (0.0, 0.6, 0.3, -0.2), 1.1, 7, _PATCHES),
    LandCover(_LAND_AND_NATURE, 60_127, (0.0, 0.4, 0.1, 0.25), 0.8, 7, _MOSAIC),
    LandCover("Agro-forestry areas", 15_082, (0.0, 0.1, 0.75, 0.1), 2.4, 7, _OPEN),
    LandCover("Broad-leaved forest", 64_164, (0.0, 0.0, 0.3, 0.4), 1.6, 7, _WOODS),
    LandCover("Coniferous forest", 76_344, (0.0, -0.25, -0.35, 0.6), 2.3, 7, _WOODS),
    LandCover("Mixed forest", 78_791, (0.0, -0.15, -0.35, 0.6), 1.7, 7, _WOODS),
    LandCover(_GRASSLAND, 6_984, (0.15, -0.4, 0.25, 0.4), 1.0, 7, _OPEN),
    LandCover(_MOORS, 6_329, (0.2, -0.45, 0.3, 0.35), 1.3, 7, _OPEN),
    LandCover("Transitional woodland, shrub", 64_198, (0.0, -0.2, 0.0, 0.65), 0.9, 7, _SCRUB),
    LandCover("Beaches, dunes, sands", 738, (0.85, 0.0, 0.1, 0.0), 0.3, 1, _SHORE),
    LandCover("Inland wetlands", 11_344, (0.0, -0.35, -0.4, 0.4), 1.0, 4, _MIRE),
    LandCover("Coastal wetlands", 670, (0.75, 0.0, 0.1, 0.0), 1.3, 2, _MARSH),
    LandCover("Inland waters", 30_466, (0.0, -0.1, -0.3, 0.1), 1.2, 3, _LAKE),
    LandCover("Marine waters", 35_914, (0.9, 0.0, 0.0, 0.0), 3.0, 0, Shape(coast=1.0)),
)
CLASSES = tuple(cover.name for cover in LAND_COVER)
_MARINE, _LAKES = CLASSES.index("Marine waters"), CLASSES.index("Inland waters")
_LOADINGS = np.array([cover.biome for cover in LAND_COVER], dtype=np.float32)
_EXTENT = np.array([cover.extent for cover in LAND_COVER], dtype=np.float32)
_RANK = np.array([cover.rank for cover in LAND_COVER], dtype=np.float32)
_SHAPE = np.array([cover.shape for cover in LAND_COVER], dtype=np.float32)
# Classes of which small patches (ponds, farms, yards, paddocks, copses) may occur in any scene,
# mostly too small to be labelled.
_SPECKS = np.array([_LAKES, 0, 1, 4, 8, 9, 13], dtype=np.uint8)
_SPECK_CHANCE = 0.4


def frequencies(temper: float) -> NDArray[np.float64]:
    """Share of scenes that contain each class; their sum is the mean number of labels.

    These are the frequencies of refined BigEarthNet to the power 1 - temper, scaled such that their
    sum stays the same: 0 keeps them (a beach in 0.3 % of the scenes), 1 makes all classes equally
    frequent.
    """
    real = np.array([cover.support for cover in LAND_COVER]) / TRAINING_IMAGES
    tempered = real ** (1 - temper)
    return np.asarray(tempered * MEAN_CARDINALITY / tempered.sum())


def compose(noise: SceneNoise, *, temper: float) -> Floats:
    """Planned share of each class in each scene, (scenes, C), rows sum to one."""
    wanted = frequencies(temper)
    alone = noise.uniform(1)[:, 0] < _SEA_ALONE * wanted[_MARINE]
    # Scenes of sea alone have no other class, so these occur more often in the other scenes.
    in_others = wanted.copy()
    in_others[_MARINE] *= 1 - _SEA_ALONE
    in_others /= 1 - _SEA_ALONE * wanted[_MARINE]
    quantiles = [NormalDist().inv_cdf(1 - min(share, 0.99)) for share in in_others]
    own = np.sqrt(1 - (_LOADINGS**2).sum(axis=1))
    # A sum instead of a matrix product, whose rounding may depend on the number of scenes.
    latent = (noise.normal(1, _LOADINGS.shape[1]) * _LOADINGS).sum(axis=2)
    margin = latent + own * noise.normal(len(CLASSES)) - np.array(quantiles, dtype=np.float32)
    present = margin > 0
    present[np.arange(len(margin)), margin.argmax(axis=1)] = True  # every scene has a class
    present[alone] = np.arange(len(CLASSES)) == _MARINE
    share = np.where(present, _EXTENT * noise.gamma(1.3, len(CLASSES)) + 1e-6, 0)
    share /= share.sum(axis=1, keepdims=True)
    spare = 1 - _LEAST_PLANNED * present.sum(axis=1, keepdims=True)
    return np.where(present, _LEAST_PLANNED + spare * share, 0).astype(np.float32)


def parcels(noise: SceneNoise, size: int) -> Bytes:
    """The parcel number of every pixel, (scenes, 2, size, size), for large and for small parcels.

    Parcels are the pieces of parallel, slightly bent strips.
    """
    y, x = pixel_centres(size)
    draw = noise.uniform(2, 2)[..., None, None]
    angle = draw[:, :, 0] * np.float32(np.pi)
    width = (0.2 + 0.15 * draw[:, :, 1]) * np.array([1, 0.45], dtype=np.float32)[:, None, None]
    bend = 0.03 * smooth(noise.normal(2, 2, 5, 5), size)
    across = x * np.cos(angle) + y * np.sin(angle) + bend[:, :, 0]
    along = y * np.cos(angle) - x * np.sin(angle) + bend[:, :, 1]
    strip = np.floor(across / width).astype(np.int64) % _CELLS
    table = noise.uniform(2, 2, _CELLS)
    length = np.take_along_axis(0.6 + table[:, :, 0, :, None], strip, axis=2) * width * 1.8
    offset = np.take_along_axis(table[:, :, 1, :, None], strip, axis=2)
    cell = np.floor(along / length + offset).astype(np.int64) % _CELLS
    return np.asarray(strip * _CELLS + cell, dtype=np.uint8)


def grow(noise: SceneNoise, planned: Floats, parcel: Bytes) -> Bytes:
    """The class of every pixel, (scenes, size, size).

    Args:
        noise: Random numbers of the scenes.
        planned: Share of each class in each scene, from `compose`.
        parcel: Parcel numbers, from `parcels`.
    """
    n, size = len(planned), parcel.shape[-1]
    shared = _shared_fields(noise, planned, parcel)
    own = [noise.normal(len(CLASSES), k, k) for k in _GRIDS]
    speck = _specks(noise, planned, size)

    # Classes are placed by rank, then from small to large; the last one fills the remaining pixels.
    order = np.argsort(np.where(planned > 0, _RANK + planned, np.inf), axis=1)
    slots = (planned > 0).sum(axis=1)
    scene = np.arange(n)
    land = np.repeat(order[scene, slots - 1].astype(np.uint8)[:, None], size * size, axis=1)
    free = np.ones(land.shape, dtype=bool)
    for slot in range(int(slots.max()) - 1):
        kind = order[:, slot]
        count = np.where(
            slot < slots - 1, np.ceil(planned[scene, kind] * size * size).astype(np.int64), 0
        )
        weights = _SHAPE[kind]
        field = (shared * weights[:, len(_GRIDS) :, None]).sum(axis=1)
        for scale, knots in enumerate(own):
            surface = smooth(knots[scene, kind], size).reshape(n, -1)
            field += weights[:, scale, None] * surface
        taken = _highest(np.where(free, field, -np.inf), count) & free
        land = np.where(taken, kind[:, None].astype(np.uint8), land)
        free &= ~taken
    dry = ~np.isin(land, (_MARINE, _LAKES))  # no farm in the middle of a lake
    for small, taken in speck:
        land = np.where(taken & dry, small[:, None], land)
    return land.reshape(n, size, size)


def _shared_fields(noise: SceneNoise, planned: Floats, parcel: Bytes) -> Floats:
    """The surfaces that all classes share, (scenes, 5, pixels).

    In this order: coast, water, town, large parcels, small parcels.
    """
    n, size = len(planned), parcel.shape[-1]
    y, x = pixel_centres(size)
    angle = (noise.uniform(1) * np.float32(2 * np.pi))[:, :, None]
    broad = smooth(noise.normal(3, 6, 6), size)
    medium = smooth(noise.normal(3, 9, 9), size)
    seaward = (x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle)
    coast = 5 * seaward + 0.5 * broad[:, 0] + 0.2 * medium[:, 0]
    level = broad[:, 1] + 0.3 * medium[:, 1]
    # Small waters may be rivers: highest along a contour line instead of at a peak.
    river = (planned[:, _LAKES] < 0.2) & (noise.uniform(1)[:, 0] < 0.5)
    water = np.where(river[:, None, None], 1.5 - 4 * np.abs(level), level)
    town = broad[:, 2] + 0.6 * medium[:, 2]
    value = noise.normal(2, _CELLS * _CELLS)
    tilled = np.take_along_axis(value, parcel.reshape(n, 2, -1).astype(np.int64), axis=2)
    natural = np.stack([coast, water, town], axis=1).reshape(n, 3, -1)
    return np.concatenate([natural, tilled], axis=1)


def _specks(noise: SceneNoise, planned: Floats, size: int) -> list[tuple[Bytes, NDArray[np.bool_]]]:
    """Up to two small patches per scene, each below the area from which a class is a label.

    Returns:
        Twice the class of the patch, (scenes,), and its pixels, (scenes, pixels).
    """
    y, x = pixel_centres(size)
    draw = noise.uniform(2, 5)
    ragged = smooth(noise.normal(2, 17, 17), size)
    specks = []
    for k in range(2):
        row, column, area, choice, chance = draw[:, k].T[:, :, None, None]
        field = -12 * np.hypot(y - row, x - column) + 0.5 * ragged[:, k]
        kind = _SPECKS[(choice[:, 0, 0] * len(_SPECKS)).astype(np.int64)]
        # No patch is added to scenes that are mostly sea or that contain the class already.
        fits = (planned[:, _MARINE] < 0.5) & (planned[np.arange(len(kind)), kind] == 0)
        wanted = fits & (chance[:, 0, 0] < _SPECK_CHANCE)
        share = np.where(wanted, 0.003 + 0.009 * area[:, 0, 0], 0)
        specks.append((kind, _highest(field.reshape(len(kind), -1), (share * size**2).astype(int))))
    return specks


def _highest(field: Floats, count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the `count` pixels with the highest values of each row (more if values are equal)."""
    ordered = np.sort(field, axis=1)
    at = np.minimum(field.shape[1] - count, field.shape[1] - 1)
    threshold = np.take_along_axis(ordered, at[:, None], axis=1)
    return np.asarray((field >= threshold) & (count > 0)[:, None])

"""The data set `mosaic`: scenes joined from real images of one class each, with maps as truth.

For studies of single labels that need both real textures and the area of every class, which no
data set with real images has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.aid import AID
from adagc.datasets.collection import Collection
from adagc.datasets.generated import counts_of, number_scenes, rows_of
from adagc.datasets.published import find_published, scene_of
from adagc.datasets.registry import DataSet
from adagc.datasets.splits import stratified_split
from adagc.datasets.ucmerced import SHARES, UCMERCED
from adagc.errors import DataError, check_range
from adagc.images.cached import CachedScenes
from adagc.images.mosaic.scenes import MosaicScenes, Part
from adagc.images.scan import find_images, image_names
from adagc.images.store.cache import open_cache
from adagc.labels import areas_from_maps

MINIMUM_AREA = 0.03  # a class below this share of the pixels is not labelled
LEAST = 4  # images of a class: fewer cannot be divided by SHARES such that every split has one
SIZES = (16, 512)  # smallest and largest height and width of a scene in pixels
LICENCE = (
    "A mosaic is a derived work: the terms of the source images hold for it, and they are to be"
    " cited. AID and UC Merced are for research only."
)


def mosaic_collection(
    root: Path,
    *,
    scenes: int = 1500,
    size: int = 96,
    seed: int = 0,
    source_size: int | None = None,
    cache: Path | None = None,
    skip_unreadable: bool = False,
) -> Collection:
    """Join scenes from patches of real images, which lie in one folder per class.

    A scene has one to six patches of different classes, all classes equally likely, with irregular
    borders. A class is a label if it covers at least 3 % of the pixels: about three labels per
    scene, if there are six classes or more. Training, validation and test scenes are made from
    different source images (60, 20 and 20 % of every class). When a split grows, its scenes keep
    their number, name and content.

    Args:
        root: Folder with one folder of images per class, at any depth: the class of an image is
            the name of its folder, in small letters. AID and UC Merced are taken as published;
            their classes are the types of their scenes (30 and 21), not those of their tables.
        scenes: Number of training scenes. Half as many are made for validation, and the same
            number for testing.
        size: Height and width of a scene in pixels, 16 to 512.
        seed: Seed of all scenes, and of the choice which images are for which split.
        source_size: Height and width in pixels that source images are resized to before patches
            are cut; None keeps the size of the files (their median side, at most 256, if it
            differs). Patches themselves are never resized.
        cache: Folder in which decoded images are kept; None means $ADAGC_CACHE, or ~/.cache/adagc
            if that is not set.
        skip_unreadable: Leave out files that cannot be decoded, instead of stopping with an error.

    Raises:
        DataError: There are fewer than two classes, or too few images of one.
        UsageError: An option is outside its range.
    """
    check_range("size", size, *SIZES)
    check_range("split_seed", seed, 0)
    check_range("source_size", source_size, 1)
    root = Path(root)
    counts = counts_of(scenes)
    numbers = number_scenes(counts)
    place, folders = _source_folders(root)
    found = find_images(place, folders)
    named = {file: kind for file in found if (kind := scene_of(file, folders))}
    _classes(root, list(named.values()))  # before any image is decoded
    store = open_cache(
        place, list(named), size=source_size, cache=cache, skip_unreadable=skip_unreadable
    )
    sources = CachedScenes(store, image_names(store.files))
    original = _originals(sources)
    classes, kinds = _classes(root, [named[store.files[row]] for row in original])
    split = _split(kinds, seed)
    kind_of = np.full(len(sources), -1, dtype=np.int64)
    kind_of[original] = kinds
    images = MosaicScenes(
        sources,
        kind_of,
        [Part(numbers[name], original[split[name]]) for name in counts],
        size=size,
        seed=seed,
    )
    areas = areas_from_maps(images.maps, len(classes))
    notes = [
        f"{count} images were left out, as {why}"
        for count, why in (
            (len(found) - len(named), "they lie in no folder of a class"),
            (len(named) - len(sources), "they cannot be read"),
            (len(sources) - len(original), "they are copies of others"),
        )
        if count
    ]
    if sources.shape[-1] < size:
        notes.append(
            f"The source images have {sources.shape[-1]} pixels per side and are mirrored at their"
            f" edges where a patch of a scene of {size} pixels is larger."
        )
    return Collection(
        images=images,
        classes=classes,
        splits=rows_of(counts),
        truth=areas >= MINIMUM_AREA,
        areas=areas,
        description=(
            f"{len(images)} mosaics of {size} x {size} pixels from {len(original)} images of"
            f" {len(classes)} classes in {place.resolve().name}, seed {seed}"
        ),
        notes=(
            "The scenes are joined from patches of real images: textures are real, what lies beside"
            " what is not.",
            f"A class counts as present from {MINIMUM_AREA:.0%} of the pixels on.",
            LICENCE,
            *notes,
            *store.notes,
        ),
    )


def _source_folders(root: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder of the source images, and the folders in it to search."""
    for layout in (AID, UCMERCED):
        location = find_published(root, layout)
        if location is not None:
            return location[0], layout.folders
    return root, ("",)


def _originals(sources: CachedScenes) -> NDArray[np.int64]:
    """Rows of the images that are no copies: a copy could get into another split.

    Images with the same sums, sums of squares and extremes in every band are taken for copies; the
    cache knows these numbers, so that no pixel is read.
    """
    measured = sources.measured(np.arange(len(sources), dtype=np.int64))
    table = measured.table[measured.rows].reshape(len(sources), -1)
    return np.sort(np.unique(table, axis=0, return_index=True)[1])


def _classes(root: Path, names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The classes, and that of each image, given by name; DataError if mosaics cannot be made."""
    found, kinds, counts = np.unique(np.array(names, str), return_inverse=True, return_counts=True)
    classes = tuple(found.tolist())
    if len(classes) < 2:
        what = f"only the class {classes[0]!r}" if classes else "no images in folders of classes"
        raise DataError(
            f"{root}: {what}, but mosaics join images of two or more classes; give a folder with"
            " images in one folder per class, <class>/<name>.jpg"
        )
    few = int(counts.argmin())
    if counts[few] < LEAST:
        raise DataError(
            f"{root}: {counts[few]} different images of the class {classes[few]!r} are too few for"
            f" training, validation and test; give every class at least {LEAST}, or remove its"
            " folder"
        )
    return classes, kinds


def _split(kinds: NDArray[np.int64], seed: int) -> dict[str, NDArray[np.int64]]:
    """The positions of the images of each split; every split has images of every class."""
    own = [np.flatnonzero(kinds == kind) for kind in range(int(kinds.max()) + 1)]
    # Class by class: of all at once, a split may get none of a class with few images.
    parts = [stratified_split(np.zeros(len(rows)), SHARES, seed) for rows in own]
    return {
        name: np.concatenate([rows[part[name]] for rows, part in zip(own, parts, strict=True)])
        for name in SHARES
    }


DATASET = DataSet(
    name="mosaic",
    about=(
        "scenes joined from real images in one folder per class, such as AID's, with the area of"
        " every class (research licence of the images)"
    ),
    home=mosaic_collection,
    title="mosaics",
    brings_truth=True,
    licence=LICENCE,
)

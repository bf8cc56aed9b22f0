"""The data set `folder`: any folder of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from adagc.datasets.assemble import assemble
from adagc.datasets.collection import Collection
from adagc.datasets.dividing import SplitRule
from adagc.datasets.registry import DataSet
from adagc.errors import UsageError, examples
from adagc.images.cached import CachedScenes
from adagc.images.scan import find_images, image_names
from adagc.images.store.cache import open_cache
from adagc.labels import LabelTable, MapFolder
from adagc.labels.map_folder import SHARE


def folder_collection(
    root: Path,
    *,
    size: int | None = None,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    classes: Sequence[str] | None = None,
    split: Path | None = None,
    seed: int = 0,
    val_share: float = 0.2,
    test_share: float = 0.2,
    bands: Sequence[str] | None = None,
    nodata: float | None = None,
    cache: Path | None = None,
    skip_unreadable: bool = False,
    maps: Path | None = None,
    map_classes: Path | None = None,
    map_share: float = SHARE,
    split_by_place: str | None = None,
) -> Collection:
    """Open the images of a folder and its subfolders; an image is named by its path in the folder.

    The name of an image is its path without extension. The splits are those of the `split` file;
    without one, those of the top folders if these are called train, val and test; otherwise they
    are drawn at random, with the same share of every observed label (without labels: of every
    folder) in each. A random test split needs `truth`. Images without a label are kept; training
    decides what to do with them.

    Args:
        root: The folder; hidden files and files that are no images are ignored.
        size: Height and width in pixels that images are resized to. None means the size of the
            files if all are squares of one size, otherwise their median side, at most 256.
        labels: Table or file of observed labels.
        truth: Table or file of complete labels, for the images that test at least.
        classes: Names and order of the classes; None means those of `truth`, else of `labels`.
        split: CSV file with the columns `image,split`.
        seed: Seed of the random split.
        val_share: Share of all images that is used for validation.
        test_share: Share of the labelled images that is used for testing, as far as their complete
            labels are known. Images with complete labels but no observed one always test.
        bands: Names of the bands in the order of the files; by default those that all files have
            for them. Two or four names keep a last band that the files declare to be transparency,
            one or three names leave it out; without names it is kept if its values do not look like
            transparency, as is usual for near-infrared bands.
        nodata: Number that stands for missing values, besides NaN and the one that a TIFF file
            names itself.
        cache: Folder in which decoded images are kept; None means $ADAGC_CACHE, or ~/.cache/adagc
            if that is not set.
        skip_unreadable: Leave out files that cannot be decoded, instead of stopping with an error.
        maps: Folder with a map of each image, whose pixels are numbers of classes; it may lie in
            `root`.
        map_classes: CSV file with the columns `code,class`: what the numbers mean.
        map_share: Share of the labelled pixels of a map from which on a class counts as present,
            where there is no `truth`.
        split_by_place: Side of blocks in metres, or "tile": images in one block are in one part,
            instead of a split by folders or labels.
    """
    root = Path(root)
    rule = SplitRule(split, seed, val_share, test_share, split_by_place)
    files = find_images(root)
    pixels = MapFolder.open(maps, map_classes, cache=cache)
    if maps is not None:
        files = _beside_maps(root, files, Path(maps))
    store = open_cache(
        root,
        files,
        size=size,
        cache=cache,
        skip_unreadable=skip_unreadable,
        alpha=None if bands is None else len(bands) in (2, 4),
        nodata=nodata,
    )
    # Named before unreadable files are left out, so that no name depends on other files.
    names = dict(zip(files, image_names(files), strict=True))
    parents = [PurePosixPath(file).parent.as_posix() for file in store.files]
    left_out = [names[file] for file in sorted(set(files) - set(store.files))]
    notes = list(store.notes)
    if left_out:
        notes.append(f"{len(left_out)} unreadable images were left out: {examples(left_out)}")
    return assemble(
        CachedScenes(store, [names[file] for file in store.files], bands, root=root),
        places=["" if parent == "." else parent for parent in parents],
        rule=rule,
        labels=labels,
        truth=truth,
        classes=classes,
        maps=pixels,
        map_share=map_share,
        left_out=left_out,
        description=f"{root.resolve().name}, {len(store)} images",
        notes=notes,
    )


def _beside_maps(root: Path, files: tuple[str, ...], maps: Path) -> tuple[str, ...]:
    """The files that do not lie in the folder of the maps."""
    if not maps.resolve().is_relative_to(root.resolve()):
        return files
    inside = maps.resolve().relative_to(root.resolve())
    if inside == Path():
        raise UsageError(
            f"--maps {maps} is the folder of the images itself: move the maps into one of their own"
        )
    return tuple(file for file in files if not Path(file).is_relative_to(inside))


DATASET = DataSet(
    name="folder",
    about="your own images: PNG, JPEG, TIFF, GeoTIFF or .npy at any depth, and a label CSV",
    home=folder_collection,
    title="own images",
    named_by_root=True,
)

"""Any folder of images as a collection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from adagc.datasets.assemble import SplitRule, assemble
from adagc.datasets.collection import Collection
from adagc.datasets.registry import DataSet
from adagc.images.cached import CachedScenes
from adagc.images.scan import find_images, image_names
from adagc.images.store.cache import open_cache
from adagc.labels import LabelTable


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
    cache: Path | None = None,
    skip_unreadable: bool = False,
) -> Collection:
    """Images at any depth of a folder, named by their path without extension.

    Splits, in this order: the `split` file; first folders called train, val and test; a seeded
    split that keeps observed labels (without them: folders) in proportion. A test part needs
    `truth`. Images without a label stay: what to do with them is for training to decide.

    Args:
        root: The folder; hidden files and files that are no images are passed over.
        size: Side length of the square images; None: that of the files if it is the same
            everywhere, otherwise their median side, at most 256.
        labels: Observed labels; here they only name classes and keep the split in proportion.
        truth: Complete multi-label table, for test images at least.
        classes: Names and order of the classes.
        split: CSV file `image,split`.
        seed: Of the split.
        val_share: Share of all images that validates.
        test_share: Share of the images with truth that tests.
        bands: Band names in file order. Four names keep a fourth band that the files declare
            to be transparency, as near-infrared bands often are.
        cache: Where decoded images are kept; None: $ADAGC_CACHE, else ~/.cache/adagc.
        skip_unreadable: Leave out files that cannot be decoded instead of raising.
    """
    root = Path(root)
    rule = SplitRule(split, seed, val_share, test_share)
    files = find_images(root)
    store = open_cache(
        root,
        files,
        size=size,
        cache=cache,
        skip_unreadable=skip_unreadable,
        alpha=bands is not None and len(bands) in (2, 4),
    )
    lost = len(files) - len(store)
    parents = [PurePosixPath(file).parent.as_posix() for file in store.files]
    return assemble(
        CachedScenes(store, image_names(store.files), bands),
        places=["" if parent == "." else parent for parent in parents],
        rule=rule,
        labels=labels,
        truth=truth,
        classes=classes,
        description=f"{root.resolve().name}, {len(store)} images",
        notes=[f"{lost} unreadable images were left out"] if lost else [],
    )


DATASET = DataSet(
    name="folder",
    about="your own images: PNG, JPEG, TIFF, GeoTIFF or .npy at any depth, and a label CSV",
    home=folder_collection,
    title="own images",
    named_by_root=True,
)

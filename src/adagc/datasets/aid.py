"""AID-multilabel: 3,000 aerial scenes with 17 object classes.

Hua, Mou and Zhu, "Relation Network for Multilabel Aerial Image Classification", TGRS 2020;
images from AID (Xia et al., TGRS 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from adagc.datasets.collection import Collection
from adagc.datasets.published import Layout, open_published, recognise_published
from adagc.datasets.registry import DataSet
from adagc.datasets.splits import stratified_split

AID = Layout(
    title="AID-multilabel",
    folders=("images_tr", "images_test"),
    tables=("multilabel.csv",),
    tree="images_tr/<Scene>/<name>.jpg, images_test/<Scene>/<name>.jpg and multilabel.csv",
)
VAL_SHARE = 0.25  # share of the images outside the test split that is used for validation


def aid_collection(
    root: Path,
    *,
    size: int | None = 96,
    seed: int = 0,
    cache: Path | None = None,
    drop: Sequence[str] = ("mobile-home",),
) -> Collection:
    """Open AID-multilabel with its published test split of 600 images.

    The other images are divided into a training and a validation split.

    Args:
        root: Folder with images_tr, images_test and multilabel.csv.
        size: Height and width in pixels that the images (600 x 600) are resized to; None keeps
            their size.
        seed: Seed of the split: decides which images are used for validation (25 % of those that
            are not for testing, the same share of every scene type).
        cache: Folder in which decoded images are kept; None means $ADAGC_CACHE, or ~/.cache/adagc
            if that is not set.
        drop: Classes to leave out; mobile-home is on two images only.
    """
    data = open_published(root, AID, size=size, cache=cache, drop=drop)
    testing = np.array(data.folders) == "images_test"
    rest = np.flatnonzero(~testing)
    scenes = np.array(data.scenes)[rest]
    parts = stratified_split(scenes, {"train": 1 - VAL_SHARE, "val": VAL_SHARE}, seed)
    splits = {name: rest[rows] for name, rows in parts.items()}
    return Collection(
        images=data.images,
        classes=data.classes,
        splits={**splits, "test": np.flatnonzero(testing)},
        truth=data.truth,
        description=f"AID-multilabel, {len(data.images)} images, {len(data.classes)} classes",
        notes=data.notes,
    )


DATASET = DataSet(
    name="aid",
    about="AID-multilabel (3,000 aerial RGB images, 17 classes) in its published folders",
    home=aid_collection,
    title="AID-multilabel",
    brings_truth=True,
    licence="AID is for research only.",
    recognise=partial(recognise_published, layout=AID),
)

"""UC Merced Land Use with multi-labels: 2,100 aerial scenes with 17 object classes.

Images: Yang and Newsam, ACM GIS 2010; multi-labels: Chaudhuri et al., TGRS 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from adagc.datasets.collection import Collection
from adagc.datasets.published import Layout, open_published, recognise_published
from adagc.datasets.registry import DataSet
from adagc.datasets.splits import stratified_split

UCMERCED = Layout(
    title="UC Merced Land Use (multi-label)",
    folders=("Images",),
    tables=("LandUse_Multilabeled.txt", "LandUse_Multilabeled.csv"),
    tree="Images/<scene>/<name>.tif and LandUse_Multilabeled.txt",
)
SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}


def ucmerced_collection(
    root: Path,
    *,
    size: int | None = 96,
    seed: int = 0,
    cache: Path | None = None,
    drop: Sequence[str] = (),
) -> Collection:
    """Open UC Merced, divided at random into 60 % training, 20 % validation and 20 % test images.

    Each split holds the same share of every scene type.

    Args:
        root: Folder with Images and LandUse_Multilabeled.txt (or .csv).
        size: Height and width in pixels that the images are resized to; None means the median of
            the files, 256. (Some published files are a few pixels smaller.)
        seed: Seed of the split; there is no official one.
        cache: Folder in which decoded images are kept; None means $ADAGC_CACHE, or ~/.cache/adagc
            if that is not set.
        drop: Classes to leave out.
    """
    data = open_published(root, UCMERCED, size=size, cache=cache, drop=drop)
    return Collection(
        images=data.images,
        classes=data.classes,
        splits=stratified_split(data.scenes, SHARES, seed),
        truth=data.truth,
        description=f"UC Merced multi-label, {len(data.images)} images",
        notes=data.notes,
    )


DATASET = DataSet(
    name="ucmerced",
    about="UC Merced Land Use (2,100 aerial RGB images, 17 classes) in its published folders",
    home=ucmerced_collection,
    title="UC Merced",
    brings_truth=True,
    licence="UC Merced is for research only.",
    recognise=partial(recognise_published, layout=UCMERCED),
)

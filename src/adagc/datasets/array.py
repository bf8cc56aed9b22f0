"""Arrays as a collection: embeddings (N, D) or images (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adagc.datasets.assemble import SplitRule, assemble
from adagc.datasets.collection import Collection
from adagc.images.array import beside, open_arrays
from adagc.labels import LabelTable


def array_collection(
    root: Path,
    *,
    names: Path | Sequence[str] | None = None,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    classes: Sequence[str] | None = None,
    split: Path | None = None,
    seed: int = 0,
    val_share: float = 0.2,
    test_share: float = 0.2,
    bands: Sequence[str] | None = None,
) -> Collection:
    """A .npy, .npz or .safetensors file, or a folder with images.npy or embeddings.npy.

    Splits follow the rules of `folder_collection`; a name like train/0001 counts as a folder.

    Args:
        root: The file or folder. A .npy file is mapped, not loaded.
        names: One name per row, or a text file with one per line; None: names.txt of the folder,
            the array `names` in the file, or 00000, 00001, ...
        labels: Observed labels; a relative path that does not exist is looked for in the folder.
        truth: Complete labels, found in the same way.
        classes: Names and order of the classes.
        split: CSV file `image,split`.
        seed: Of the split.
        val_share: Share of all rows that validates.
        test_share: Share of the rows with truth that tests.
        bands: Names of the bands (of the features for embeddings).
    """
    root = Path(root)
    folder = root if root.is_dir() else root.parent
    images = open_arrays(root, names=names, bands=bands)
    return assemble(
        images,
        places=[name.rpartition("/")[0] for name in images.names],
        rule=SplitRule(beside(folder, split), seed, val_share, test_share),
        labels=labels if isinstance(labels, LabelTable) else beside(folder, labels),
        truth=truth if isinstance(truth, LabelTable) else beside(folder, truth),
        classes=classes,
        description=f"{root.resolve().name}, {len(images)} rows of shape {images.shape}",
    )

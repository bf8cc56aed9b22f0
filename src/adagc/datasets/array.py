"""Arrays as a collection: embeddings (N, D) or images (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adagc.datasets.assemble import SplitRule, assemble
from adagc.datasets.collection import Collection
from adagc.datasets.registry import DataSet, Recognised
from adagc.errors import UsageError
from adagc.images.array import array_file, open_arrays
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
        labels: Observed labels.
        truth: Complete labels.
        classes: Names and order of the classes.
        split: CSV file `image,split`.
        seed: Of the split.
        val_share: Share of all rows that validates.
        test_share: Share of the rows with truth that tests.
        bands: Names of the bands (of the features for embeddings).
    """
    root = Path(root)
    images = open_arrays(root, names=names, bands=bands)
    return assemble(
        images,
        places=[name.rpartition("/")[0] for name in images.names],
        rule=SplitRule(split, seed, val_share, test_share),
        labels=labels,
        truth=truth,
        classes=classes,
        description=f"{root.resolve().name}, {len(images)} rows of shape {images.shape}",
    )


def _recognise(root: Path) -> Recognised | None:
    if array_file(root) is None:
        return None
    return Recognised("array", root, images=lambda bands: open_arrays(root, bands=bands))


def _files(settings: Mapping[str, Any]) -> dict[str, Path]:
    """The array, and the names of its rows."""
    if settings.get("root") is None:
        return {}
    root = Path(settings["root"])
    array = array_file(root)
    if array is None:
        raise UsageError(f"{root} holds no array: give the file, or mend the scenario")
    names = root / "names.txt"
    return {"root": array, **({"names": names} if names.is_file() else {})}


DATASET = DataSet(
    name="array",
    about="an N x D or N x C x H x W array (.npy, .npz, .safetensors), such as embeddings",
    home=array_collection,
    title="embeddings",
    named_by_root=True,
    recognise=_recognise,
    files=_files,
)

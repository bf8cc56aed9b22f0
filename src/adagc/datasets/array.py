"""The data set `array`: embeddings (N, D) or images (N, C, H, W) from one array file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adagc.datasets.assemble import assemble
from adagc.datasets.collection import Collection
from adagc.datasets.dividing import SplitRule
from adagc.datasets.registry import DataSet, Recognised
from adagc.images.array import array_file, names_file, open_arrays
from adagc.labels import LabelTable, MapFolder
from adagc.labels.map_folder import SHARE
from adagc.suggest import holds_none

AREAS = "areas.csv"  # in the folder of an array: area of each class on each row


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
    nodata: float | None = None,
    maps: Path | None = None,
    map_classes: Path | None = None,
    map_share: float = SHARE,
    split_by_place: str | None = None,
) -> Collection:
    """Open a .npy, .npz or .safetensors file, or a folder with images.npy or embeddings.npy.

    The splits follow the rules of `folder_collection`; the row name train/0001 counts as the image
    0001 in the folder train. If the folder has a file areas.csv (a row for each row of `truth`, a
    column for each class), dominant labels can be simulated.

    Args:
        root: The file or folder. A .npy file is memory-mapped, not loaded.
        names: One name per row, or a text file with one name per line. None means names.txt of the
            folder, or x.names.txt beside the file x.npy, else the array `names` in the file, else
            00000, 00001, ...
        labels: Table or file of observed labels.
        truth: Table or file of complete labels, for the rows that test at least.
        classes: Names and order of the classes; None means those of `truth`, else of `labels`.
        split: CSV file with the columns `image,split`.
        seed: Seed of the random split, where neither `split` nor the names decide.
        val_share: Share of all rows that is used for validation.
        test_share: Share of the labelled rows that is used for testing, as far as their complete
            labels are known. Rows with complete labels but no observed one always test.
        bands: Names of the bands (for embeddings: of the features).
        nodata: Number that stands for missing values, besides NaN.
        maps: Folder with a map of each row, whose pixels are numbers of classes.
        map_classes: CSV file with the columns `code,class`: what the numbers mean.
        map_share: Share of the labelled pixels of a map from which on a class counts as present,
            where there is no `truth`.
        split_by_place: Side of blocks in metres, or "tile": images in one block are in one part,
            instead of a split by folders or labels.
    """
    root = Path(root)
    areas = _beside(root, AREAS) if truth is not None else None
    images = open_arrays(root, names=names, bands=bands, nodata=nodata)
    return assemble(
        images,
        places=[name.rpartition("/")[0] for name in images.names],
        rule=SplitRule(split, seed, val_share, test_share, split_by_place),
        labels=labels,
        truth=truth,
        classes=classes,
        areas=areas,
        maps=MapFolder.open(maps, map_classes),
        map_share=map_share,
        description=f"{root.resolve().name}, {len(images)} rows of shape {images.shape}",
    )


def _recognise(root: Path) -> Recognised | None:
    if array_file(root) is None:
        return None
    return Recognised("array", root, images=lambda nodata: open_arrays(root, nodata=nodata))


def _files(settings: Mapping[str, Any]) -> dict[str, Path]:
    """The file of the array and, if there are any, the files with names and areas of its rows."""
    if settings.get("root") is None:
        return {}
    root = Path(settings["root"])
    array = array_file(root)
    if array is None:
        raise holds_none(root, "array file")
    others = {"names": names_file(root), "areas": _beside(root, AREAS)}
    return {"root": array, **{key: path for key, path in others.items() if path is not None}}


def _beside(root: Path, name: str) -> Path | None:
    """A file of this name in the folder of the array; None if there is none."""
    path = root / name
    return path if path.is_file() else None


DATASET = DataSet(
    name="array",
    about="an N x D or N x C x H x W array (.npy, .npz, .safetensors), such as embeddings",
    home=array_collection,
    title="embeddings",
    named_by_root=True,
    recognise=_recognise,
    files=_files,
)

"""The data set `geoparquet`: embedding products as they are published, with their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adagc.datasets.assemble import assemble
from adagc.datasets.collection import Collection
from adagc.datasets.dividing import SplitRule
from adagc.datasets.registry import DataSet, Recognised
from adagc.errors import AdagcError
from adagc.images.parquet import ParquetScenes
from adagc.labels import LabelTable, MapFolder
from adagc.labels.map_folder import SHARE
from adagc.suggest import holds_none
from adagc.tables.reading import SUFFIXES, VECTORS, Source, parquet_files


def geoparquet_collection(
    root: Path,
    *,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    classes: Sequence[str] | None = None,
    split: Path | None = None,
    seed: int = 0,
    val_share: float = 0.2,
    test_share: float = 0.2,
    nodata: float | None = None,
    maps: Path | None = None,
    map_classes: Path | None = None,
    map_share: float = SHARE,
    split_by_place: str | None = None,
) -> Collection:
    """Open a Parquet file with a column `embedding` or `embeddings`, or a folder of such files.

    Rows are named by the first of the columns image, id, unique_id, tile_id, item_id, chip_id,
    chips_id, name and source_url that has a different value in each row; else they are numbered.
    The file may be its own label file, if it has a column `label` or `labels`. The splits follow
    the rules of `folder_collection`.

    Args:
        root: The file or folder.
        labels: Table or file of observed labels.
        truth: Table or file of complete labels, for the rows that test at least.
        classes: Names and order of the classes; None means those of `truth`, else of `labels`.
        split: CSV file with the columns `image,split`.
        seed: Seed of the random split.
        val_share: Share of all rows that is used for validation.
        test_share: Share of the labelled rows that is used for testing, as far as their complete
            labels are known. Rows with complete labels but no observed one always test.
        nodata: Number that stands for missing values, besides NaN.
        maps: Folder with a map of each row, whose pixels are numbers of classes.
        map_classes: CSV file with the columns `code,class`: what the numbers mean.
        map_share: Share of the labelled pixels of a map from which on a class counts as present,
            where there is no `truth`.
        split_by_place: Side of blocks in metres, or "tile": images in one block are in one part,
            instead of a split by folders or labels.
    """
    root = Path(root)
    images = ParquetScenes(root, nodata=nodata)
    return assemble(
        images,
        places=[""] * len(images),
        rule=SplitRule(split, seed, val_share, test_share, split_by_place),
        labels=labels,
        truth=truth,
        classes=classes,
        maps=MapFolder.open(maps, map_classes),
        map_share=map_share,
        description=f"{root.resolve().name}, {len(images)} rows of {images.shape[0]} numbers",
    )


def _recognise(root: Path) -> Recognised | None:
    """A Parquet file, or a folder with one of vectors at its top.

    Beside images there may be tables of other things, such as completed labels.
    """
    if root.is_dir():
        here = sorted(path for path in root.iterdir() if path.suffix.lower() in SUFFIXES)
        if not any(_has_vectors(path) for path in here):
            return None
    elif not parquet_files(root):
        return None
    return Recognised("geoparquet", root, images=lambda nodata: ParquetScenes(root, nodata=nodata))


def _has_vectors(path: Path) -> bool:
    try:
        return bool({*VECTORS} & {*Source.at(path).columns})
    except AdagcError:  # unreadable, or nothing here that reads it
        return False


def _files(settings: Mapping[str, Any]) -> dict[str, Path]:
    """The Parquet files; of a folder each by its name."""
    if settings.get("root") is None:
        return {}
    root = Path(settings["root"])
    files = parquet_files(root)
    if not files:
        raise holds_none(root, "Parquet file")
    if root.is_file():
        return {"root": root}
    return {f"root/{path.relative_to(root).as_posix()}": path for path in files}


DATASET = DataSet(
    name="geoparquet",
    about="embeddings as published (Clay, Major TOM, Earth Index): Parquet files with places",
    home=geoparquet_collection,
    title="embeddings with places",
    named_by_root=True,
    recognise=_recognise,
    files=_files,
)

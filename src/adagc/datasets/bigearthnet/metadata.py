"""What published copies say of their patches: metadata.parquet, or the JSON of version 1."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.layout import METADATA, Layout
from adagc.datasets.bigearthnet.nomenclature import CLASSES, class_of, multi_hot
from adagc.datasets.bigearthnet.patches import CLOUDY, SPLITS, Patches
from adagc.errors import DataError, MissingExtraError
from adagc.progress import tracked

_SPLITS: Final = {"train": 0, "validation": 1, "val": 1, "test": 2}
_COLUMNS: Final = ("patch_id", "labels", "split", "s1_name")
_READERS: Final = min(16, 4 * (os.cpu_count() or 1))  # threads; they mostly wait for the disk


def read_metadata(layout: Layout, *, cloudy: bool = False) -> Patches:
    """The patches that a published copy says it has.

    Args:
        layout: Where its parts are.
        cloudy: Take also those with snow, clouds or shadow, which have a table of their own.
    """
    if layout.version == 1:
        return _of_version_1(layout)
    if layout.metadata is None:
        raise DataError(
            f"{layout.root}: {METADATA} is missing, which says labels and splits of all patches:"
            " get it from where the images are from, and put it into this folder"
        )
    patches = read_parquet(layout.metadata)
    if not cloudy:
        return patches
    if layout.cloudy is None:
        raise DataError(
            f"{layout.root}: there is no table of patches with snow, clouds or shadow, which"
            " comes with the images"
        )
    return patches.joined(read_parquet(layout.cloudy))


def read_parquet(path: Path) -> Patches:
    """The patches in a table of version 2."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(f"pyarrow, which reads {path.name},", "reben") from None
    try:
        schema = pyarrow.parquet.read_schema(path)
        lacking = [name for name in _COLUMNS if name not in schema.names]
        if lacking:
            raise DataError(f"{path} has no column {lacking[0]}: is it BigEarthNet's table?")
        flags = [n for n in ("contains_seasonal_snow", "contains_cloud_or_shadow")
                 if n in schema.names]  # fmt: skip
        table = pyarrow.parquet.read_table(path, columns=[*_COLUMNS, *flags])
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read ({error}): get it again") from None
    table = table.combine_chunks()
    count = table.num_rows
    flagged = np.zeros(count, dtype=np.uint8)
    for name in flags:
        flagged |= table[name].to_numpy().astype(np.uint8) * CLOUDY
    return Patches(
        tuple(table["patch_id"].to_pylist()),
        tuple(name or "" for name in table["s1_name"].to_pylist()),
        _coded(table["split"], _SPLITS, path),
        _hot(table["labels"], path),
        flagged,
    )


def _coded(column: Any, codes: dict[str, int], path: Path) -> NDArray[np.int8]:
    """The code of each word of a column; a word without one is a DataError."""
    coded = column.combine_chunks().dictionary_encode()
    words = coded.dictionary.to_pylist()
    strange = next((word for word in words if word not in codes), None)
    if strange is not None:
        raise DataError(f"{path}: {strange!r} is no split; expected {', '.join(codes)}")
    own = np.array([codes[word] for word in words], dtype=np.int8)
    chosen: NDArray[np.int8] = own[coded.indices.to_numpy(zero_copy_only=False)]
    return chosen


def _hot(column: Any, path: Path) -> NDArray[np.bool_]:
    """Which of the 19 classes each list of names has, (N, 19)."""
    lists = column.combine_chunks()
    named = lists.flatten().dictionary_encode()
    numbers = [class_of(name, str(path)) for name in named.dictionary.to_pylist()]
    own = np.array([-1 if number is None else number for number in numbers], dtype=np.int64)
    lengths = np.diff(lists.offsets.to_numpy())
    rows = np.repeat(np.arange(len(lengths)), lengths)
    columns = own[named.indices.to_numpy(zero_copy_only=False)]
    values = np.zeros((len(lengths), len(CLASSES)), dtype=np.bool_)
    values[rows[columns >= 0], columns[columns >= 0]] = True
    return values


def _of_version_1(layout: Layout) -> Patches:
    """The patches of version 1: one JSON file each, radar patches naming their optical ones."""
    if layout.optical is None:
        raise DataError(
            f"{layout.root}: the Sentinel-2 half of BigEarthNet is missing, which has the labels"
        )
    names = sorted(_patch_folders(layout.optical))
    found = _read_all(layout.optical, names, "reading labels")
    hot = [
        multi_hot(entry.get("labels", ()), str(_json(layout.optical, name)))
        for name, entry in zip(names, found, strict=True)
    ]
    radar_of: dict[str, str] = {}
    if layout.radar is not None:
        radar = sorted(_patch_folders(layout.radar))
        pairs = _read_all(layout.radar, radar, "reading pairs")
        radar_of = {
            entry.get("corresponding_s2_patch", ""): name
            for name, entry in zip(radar, pairs, strict=True)
        }
    return Patches(
        tuple(names),
        tuple(radar_of.get(name, "") for name in names),
        _splits_of_version_1(layout.root, names),
        np.stack(hot) if hot else np.zeros((0, len(CLASSES)), dtype=np.bool_),
        np.zeros(len(names), dtype=np.uint8),
    )


def _splits_of_version_1(root: Path, names: Sequence[str]) -> NDArray[np.int8]:
    """The published splits: train.csv, val.csv and test.csv, whose first column names patches.

    They come apart from the images; without them no patch has a split.
    """
    codes = np.full(len(names), -1, dtype=np.int8)
    files = [root / f"{split}.csv" for split in SPLITS]
    if all(file.is_file() for file in files):
        place = {name: row for row, name in enumerate(names)}
        for number, file in enumerate(files):
            for line in file.read_text(encoding="utf-8-sig").splitlines():
                row = place.get(line.partition(",")[0].strip())
                if row is not None:
                    codes[row] = number
    return codes


def _patch_folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.name.startswith(("S1", "S2"))]


def _json(folder: Path, name: str) -> Path:
    return folder / name / f"{name}_labels_metadata.json"


def _read_all(folder: Path, names: Sequence[str], what: str) -> list[dict[str, Any]]:
    def read(name: str) -> dict[str, Any]:
        path = _json(folder, name)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error}): get the patch again") from None
        return found if isinstance(found, dict) else {}

    with ThreadPoolExecutor(_READERS) as pool:
        done: Iterable[dict[str, Any]] = pool.map(read, names)
        return [entry for _, entry in zip(tracked(names, what, unit="patches"), done, strict=True)]

"""The index of an image cache: which row of which array holds which state of which file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.decode import Shape

VERSION: Final = 1  # of the folder's layout; another number is rebuilt

Stamp = tuple[str, int, int]  # relative path, size in bytes, mtime in ns
Peek = tuple[Shape, np.dtype[Any]]


@dataclass(frozen=True)
class Index:
    """What index.json says: the array, and for each source file its row (-1: unreadable)."""

    path: Path
    array: NDArray[Any]  # mapped at once: a file in use stays, even when a newer one replaces it
    rows: dict[Stamp, int]
    peeks: dict[Stamp, Peek]


def map_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file without loading it."""
    # a plain view: results of indexing the memmap class itself are wrapped in Python
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)


def stamp_files(root: Path, files: Sequence[str]) -> list[Stamp]:
    """The files as they are now."""
    try:
        stats = [(file, (root / file).stat()) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be opened; check the folder") from error
    return [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def read_index(folder: Path) -> Index | None:
    """The published state; None if there is none or it does not fit together."""
    try:
        content = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return None
        path = folder / content["data"]
        array = map_array(path)
        rows: dict[Stamp, int] = {}
        peeks: dict[Stamp, Peek] = {}
        for file, length, mtime, row, bands, height, width, dtype in content["files"]:
            rows[file, length, mtime] = row
            if row >= 0:
                peeks[file, length, mtime] = ((bands, height, width), np.dtype(dtype))
        fits = max(rows.values()) < len(array)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Index(path, array, rows, peeks) if fits else None


def publish(folder: Path, data: Path, rows: dict[Stamp, int], peeks: dict[Stamp, Peek]) -> None:
    """Replace the index in one step; the array must be complete and flushed."""
    nothing: Peek = ((0, 0, 0), np.dtype(np.uint8))
    lines = [
        [*stamp, row, *peeks.get(stamp, nothing)[0], peeks.get(stamp, nothing)[1].str]
        for stamp, row in rows.items()
    ]
    content = {"version": VERSION, "data": data.name, "files": lines}
    temporary = folder / f".index-{os.getpid()}.json"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / "index.json")

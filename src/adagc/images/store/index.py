"""The index of an image cache: which row of the array holds which version of which file."""

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

VERSION: Final = 1  # of the cache format; a cache with another number is built again

Stamp = tuple[str, int, int]  # relative path, size in bytes, modification time in nanoseconds
Peek = tuple[Shape, np.dtype[Any]]  # shape and dtype of a source file


@dataclass(frozen=True)
class Index:
    """The content of index.json, with the array that it names."""

    path: Path  # file of the array
    array: NDArray[Any]  # mapped when the index is read: it stays usable if the file is replaced
    rows: dict[Stamp, int]  # row of each source file, -1 if the file is unreadable
    peeks: dict[Stamp, Peek]  # of the readable files


def map_array(path: Path) -> NDArray[Any]:
    """Memory-map the array of a .npy file."""
    # A view as a plain array, because indexing the class np.memmap is slower.
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)


def stamp_files(root: Path, files: Sequence[str]) -> list[Stamp]:
    """Path, size and modification time of each file, by which changes are detected."""
    try:
        stats = [(file, (root / file).stat()) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be opened; check the folder") from error
    return [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def read_index(folder: Path) -> Index | None:
    """Read the current index of a cache folder; None if there is none or it is not valid."""
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
    """Replace the index atomically; from then on readers use the array in `data`.

    Args:
        folder: Folder of the cache.
        data: File of the array, which must be complete and flushed to disk.
        rows: Row of each source file, -1 if it is unreadable.
        peeks: Shape and dtype of the readable source files.
    """
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

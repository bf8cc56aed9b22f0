"""The index of an image cache: which row of the array holds which version of which file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_text
from adagc.images.decode import Header

VERSION: Final = 2  # of the cache format; a cache with another number is built again

Stamp = tuple[str, int, int]  # relative path, size in bytes, modification time in nanoseconds


@dataclass(frozen=True)
class Index:
    """The content of index.json, with the array that it names."""

    path: Path  # file of the array
    array: NDArray[Any]  # mapped when the index is read: it stays usable if the file is replaced
    rows: dict[Stamp, int]  # row of each source file, -1 if the file is unreadable
    headers: dict[Stamp, Header]  # of the readable files, with all their bands
    alpha: bool  # whether bands that files declare to be transparency are kept

    @property
    def depth(self) -> np.dtype[Any]:
        """The dtype of the values in the files, before missing ones became NaN."""
        return np.result_type(*{header.depth for header in self.headers.values()})

    @property
    def side(self) -> int:
        """Median side of the files in pixels, before they were resized."""
        sides = [side for header in self.headers.values() for side in header.shape[1:]]
        return round(float(np.median(sides)))

    @property
    def declared(self) -> int:
        """How many files declare their last band to be transparency."""
        return sum(header.alpha for header in self.headers.values())


def map_array(path: Path) -> NDArray[Any]:
    """Memory-map the array of a .npy file."""
    # A view as a plain array, because indexing the class np.memmap is slower.
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)


def stamp_files(root: Path, files: Sequence[str]) -> list[Stamp]:
    """Path, size and modification time of each file, by which changes are detected.

    Size and time of a file that cannot be opened, such as a broken link, are -1.
    """

    def stamp(file: str) -> Stamp:
        try:
            stat = (root / file).stat()
        except OSError:
            return file, -1, -1
        return file, stat.st_size, stat.st_mtime_ns

    return [stamp(file) for file in files]


def read_index(folder: Path) -> Index | None:
    """Read the current index of a cache folder; None if there is none or it is not valid."""
    try:
        content = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return None
        path = folder / content["data"]
        array = map_array(path)
        rows: dict[Stamp, int] = {}
        headers: dict[Stamp, Header] = {}
        for file, length, mtime, row, header in content["files"]:
            rows[file, length, mtime] = row
            if header is not None:
                (bands, height, width), dtype, depth, alpha = header
                headers[file, length, mtime] = Header(
                    (bands, height, width), np.dtype(dtype), np.dtype(depth), bool(alpha)
                )
        fits = max(rows.values()) < len(array)
        index = Index(path, array, rows, headers, bool(content["alpha"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return index if fits else None


def publish(folder: Path, index: Index) -> None:
    """Replace the index atomically; from then on readers use its array.

    Args:
        folder: Folder of the cache.
        index: The new index, whose array must be complete and flushed to disk.
    """

    def line(stamp: Stamp, row: int) -> list[object]:
        header = index.headers.get(stamp)
        if header is None:
            return [*stamp, row, None]
        return [*stamp, row, [header.shape, header.dtype.str, header.depth.str, header.alpha]]

    content = {
        "version": VERSION,
        "data": index.path.name,
        "alpha": index.alpha,
        "files": [line(stamp, row) for stamp, row in index.rows.items()],
    }
    write_text(folder / "index.json", json.dumps(content))

"""The index of an image cache: which row of the array holds which version of which file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_bytes
from adagc.images.band_names import Named
from adagc.images.decode import Header

VERSION: Final = 4  # of the cache format; a cache with another number is built again
INDEX: Final = "index.safetensors"
_NUMBERS = ("lengths", "times", "rows", "kinds")  # arrays with one number per file

Stamp = tuple[str, int, int]  # relative path, size in bytes, modification time in nanoseconds


@dataclass(frozen=True)
class Index:
    """The content of an index, with the array that it names."""

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
    def named(self) -> dict[Named, str]:
        """What files call their bands, and the first file that does."""
        found: dict[Named, str] = {}
        for (file, _, _), header in self.headers.items():
            found.setdefault(header.named, file)
        return found

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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / INDEX, framework="numpy") as content:
            told = json.loads(content.metadata()["adagc"])
            if told["version"] != VERSION:
                return None
            numbers = {name: content.get_tensor(name).tolist() for name in _NUMBERS}
            names = bytes(content.get_tensor("files")).decode(errors="surrogateescape")
        path = folder / told["data"]
        array = map_array(path)
        known = [
            Header(tuple(shape), np.dtype(dtype), np.dtype(depth), bool(alpha), tuple(named))
            for shape, dtype, depth, alpha, named in told["headers"]
        ]
        stamps = zip(names.split("\0"), numbers["lengths"], numbers["times"], strict=True)
        rows: dict[Stamp, int] = dict(zip(stamps, numbers["rows"], strict=True))
        headers = {
            stamp: known[kind]
            for stamp, kind in zip(rows, numbers["kinds"], strict=True)
            if kind >= 0
        }
        fits = max(rows.values()) < len(array)
        index = Index(path, array, rows, headers, bool(told["alpha"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, SafetensorError):
        return None
    return index if fits else None


def publish(folder: Path, index: Index) -> None:
    """Replace the index atomically; from then on readers use its array.

    It is arrays: reading the index of half a million files as JSON took nine seconds.

    Args:
        folder: Folder of the cache.
        index: The new index, whose array must be complete and flushed to disk.
    """
    from safetensors.numpy import save

    kinds = {header: number for number, header in enumerate(dict.fromkeys(index.headers.values()))}
    own = [index.headers.get(stamp) for stamp in index.rows]
    names = "\0".join(stamp[0] for stamp in index.rows)
    told = {
        "version": VERSION,
        "data": index.path.name,
        "alpha": index.alpha,
        "headers": [[h.shape, h.dtype.str, h.depth.str, h.alpha, h.named] for h in kinds],
    }
    arrays: dict[str, NDArray[Any]] = {
        "files": np.frombuffer(names.encode(errors="surrogateescape"), dtype=np.uint8),
        "lengths": np.array([stamp[1] for stamp in index.rows], dtype=np.int64),
        "times": np.array([stamp[2] for stamp in index.rows], dtype=np.int64),
        "rows": np.array(list(index.rows.values()), dtype=np.int64),
        "kinds": np.array([-1 if h is None else kinds[h] for h in own], dtype=np.int32),
    }
    write_bytes(folder / INDEX, save(arrays, metadata={"adagc": json.dumps(told)}))
    (folder / "index.json").unlink(missing_ok=True)  # of a version before this one

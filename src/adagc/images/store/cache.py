"""Images decoded once: one memory-mapped array per folder and size.

A published array is never written to again. When source files change, the rows that still hold
are copied into a new array, the others are decoded, and the index is replaced in one step; so a
reader sees the old state or the new one. Mean and spread of each image are kept beside the array:
statistics of any split read no pixel. A build that was killed leaves a journal of the rows it had
flushed, and the next build takes those over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.decode import EXTENSIONS, Shape, load
from adagc.images.moments import Moments, summed
from adagc.images.store.build import build, complain
from adagc.images.store.index import Index, Stamp, map_array, read_index, stamp_files
from adagc.images.store.moments import read_moments
from adagc.images.store.place import default_base, locked, open_folder


class ImageCache:
    """Decoded images of one folder, rows in the order of `files`."""

    def __init__(
        self, path: Path, array: NDArray[Any], files: Sequence[str], rows: NDArray[np.int64]
    ) -> None:
        self.path = path
        self.files = tuple(files)
        self._array = array
        self._rows = rows
        self._moments: NDArray[Any] | None = None

    @property
    def shape(self) -> Shape:
        """(bands, H, W) of one image."""
        bands, height, width = self._array.shape[1:]
        return bands, height, width

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the source files."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self.files)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A fresh (len(rows), bands, H, W) array."""
        return np.take(self._array, self._rows[rows], axis=0)

    def moments(self, rows: NDArray[np.int64]) -> Moments:
        """Of these images, from what was kept when they were decoded."""
        if self._moments is None:
            self._moments = read_moments(self.path, self._array)
        return summed(self._moments, self._rows[rows], self.shape[1] * self.shape[2])

    def __getstate__(self) -> dict[str, Any]:
        # a worker process maps the file itself instead of receiving gigabytes
        return {"path": self.path, "files": self.files, "_rows": self._rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._array = map_array(self.path)
        self._moments = None


def open_cache(
    root: Path,
    files: Sequence[str],
    *,
    size: int | None = None,
    cache: Path | None = None,
    skip_unreadable: bool = False,
    alpha: bool = False,
) -> ImageCache:
    """The decoded images of `files`, building or mending the cache where needed.

    Args:
        root: Folder of the source files.
        files: Paths relative to `root`.
        size: Side length of the square images; None: the common size if all files share one,
            otherwise the median side, at most 256.
        cache: Where caches live; None: $ADAGC_CACHE, else ~/.cache/adagc.
        skip_unreadable: Leave out files that cannot be decoded instead of raising.
        alpha: Keep bands declared as transparency.
    """
    root = Path(root)
    if not files:
        raise DataError(f"{root}: no images found; expected files like {', '.join(EXTENSIONS)}")
    identity = (os.fspath(root.resolve()), size, EXTENSIONS, alpha)
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]
    stamps = stamp_files(root, files)

    # a finished cache may be shared read-only; only building needs a place to write
    index = read_index((default_base() if cache is None else Path(cache)) / key)
    if index is None or not _holds(index, stamps, root, alpha):
        folder = open_folder(cache, key)
        with locked(folder / "lock"):
            index = read_index(folder)  # another process may have built it while we waited
            if index is None or not _holds(index, stamps, root, alpha):
                index = build(root, stamps, folder, index, size, alpha)
    readable = [stamp for stamp in stamps if index.rows[stamp] >= 0]
    if not skip_unreadable or not readable:
        complain(root, [stamp[0] for stamp in stamps if index.rows[stamp] < 0], len(stamps))
    rows = np.array([index.rows[stamp] for stamp in readable], dtype=np.int64)
    return ImageCache(index.path, index.array, [stamp[0] for stamp in readable], rows)


def _holds(index: Index, stamps: Sequence[Stamp], root: Path, alpha: bool) -> bool:
    """Whether the index speaks of exactly these files, and what it calls unreadable still is."""
    if index.rows.keys() != set(stamps):
        return False
    # permissions may have been mended without a new mtime
    doubtful = [root / stamp[0] for stamp, row in index.rows.items() if row < 0]
    return not any(_readable(path, index.array.shape[-1], alpha) for path in doubtful)


def _readable(path: Path, size: int, alpha: bool) -> bool:
    try:
        load(path, size, alpha=alpha)
    except DataError:
        return False
    return True

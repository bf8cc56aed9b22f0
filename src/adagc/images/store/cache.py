"""Open the cache of decoded images: one memory-mapped array per folder and image size.

An array that an index names is never changed. When source files change, a new array is built: rows
of unchanged files are copied, other files are decoded, and then the index is replaced atomically,
so that a reader sees either the old or the new state. The moments of each image are stored beside
the array, so that statistics of any split can be computed without reading pixels. A build that is
killed leaves a journal of the rows that were written, which the next build copies.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.band_names import Named
from adagc.images.decode import EXTENSIONS, load
from adagc.images.moments import Kept
from adagc.images.store.build import Reading, build, complain, transparency_notes
from adagc.images.store.index import Index, Stamp, map_array, read_index, stamp_files
from adagc.images.store.moments import read_moments
from adagc.images.store.place import default_base, locked, open_folder
from adagc.images.tiff import Shape


class ImageCache:
    """Decoded images of one folder; image i is the file `files[i]`.

    Args:
        path: The .npy file of the array.
        array: The array in this file, (rows, bands, H, W).
        files: Relative path of the source file of each image.
        rows: The row of the array that holds each image.
        depth: The dtype of the values in the files, before missing ones became NaN.
        notes: What a user should know about how the files were read.
        side: Median side of the files in pixels, before they were resized.
        named: What files call their bands, and one file that does.
    """

    def __init__(
        self,
        path: Path,
        array: NDArray[Any],
        files: Sequence[str],
        rows: NDArray[np.int64],
        depth: np.dtype[Any],
        notes: Sequence[str] = (),
        side: int | None = None,
        named: Mapping[Named, str] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.files = tuple(files)
        self.depth = depth
        self.notes = tuple(notes)
        self.side = side
        self.named = dict(named)
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
        """The dtype of the values: `depth`, or a float that holds all of it if some are missing."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self.files)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The values of these images in a new array, (len(rows), bands, H, W)."""
        return np.take(self._array, self._rows[rows], axis=0)

    def measured(self, rows: NDArray[np.int64]) -> Kept:
        """The moments of each of these images, as stored when they were decoded."""
        if self._moments is None:
            self._moments = read_moments(self.path, self._array)
        return Kept(self._moments, self._rows[rows], self.shape[1] * self.shape[2])

    def __getstate__(self) -> dict[str, Any]:
        # a worker process maps the file again, so that the array need not be sent to it
        return {**self.__dict__, "_array": None, "_moments": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._array = map_array(self.path)


def open_cache(
    root: Path,
    files: Sequence[str],
    *,
    size: int | None = None,
    cache: Path | None = None,
    skip_unreadable: bool = False,
    alpha: bool | None = None,
    nodata: float | None = None,
) -> ImageCache:
    """Open the decoded images of `files`; the cache is built or updated if needed.

    Args:
        root: Folder of the source files.
        files: Paths relative to `root`.
        size: Height and width in pixels that images are resized to. None means the size of the
            files if all are squares of one size, otherwise their median side, at most 256.
        cache: Folder that holds all caches; None means $ADAGC_CACHE, or ~/.cache/adagc if that is
            not set.
        skip_unreadable: Leave out files that cannot be decoded, instead of raising a DataError.
        alpha: Keep bands that files declare to be transparency. None: keep them if their values do
            not look like it in some file.
        nodata: Number that stands for missing values, besides those that TIFF files name.
    """
    root = Path(root)
    if not files:
        raise DataError(f"{root}: no images found; expected files like {', '.join(EXTENSIONS)}")
    reading = Reading(size, alpha, nodata)
    identity = (os.fspath(root.resolve()), size, EXTENSIONS, alpha, nodata)
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]
    stamps = stamp_files(root, files)

    # a finished cache may be on a read-only disk; only building needs a writable folder
    index = read_index((default_base() if cache is None else Path(cache)) / key)
    if index is None or not _holds(index, stamps, root):
        folder = open_folder(cache, key)
        with locked(folder / "lock"):
            index = read_index(folder)  # another process may have built it during the wait
            if index is None or not _holds(index, stamps, root):
                index = build(root, stamps, folder, index, reading)
    readable = [stamp for stamp in stamps if index.rows[stamp] >= 0]
    if not skip_unreadable or not readable:
        complain(root, [stamp[0] for stamp in stamps if index.rows[stamp] < 0], len(stamps))
    rows = np.array([index.rows[stamp] for stamp in readable], dtype=np.int64)
    names = [stamp[0] for stamp in readable]
    notes = transparency_notes(index.declared, len(index.headers), kept=index.alpha)
    told = notes, index.side, index.named
    return ImageCache(index.path, index.array, names, rows, index.depth, *told)


def open_store(folder: Path) -> ImageCache:
    """The decoded images in the folder of a cache, whether their source files still exist or not.

    DataError if there is no whole cache in this folder.
    """
    index = read_index(Path(folder))
    if index is None:
        raise DataError(f"{folder}: holds no decoded images; give the folder of an image cache")
    readable = [(stamp[0], row) for stamp, row in index.rows.items() if row >= 0]
    rows = np.array([row for _, row in readable], dtype=np.int64)
    names = [name for name, _ in readable]
    told = (), index.side, index.named
    return ImageCache(index.path, index.array, names, rows, index.depth, *told)


def _holds(index: Index, stamps: Sequence[Stamp], root: Path) -> bool:
    """Whether the index is valid: same files, and those marked unreadable are still unreadable."""
    if index.rows.keys() != set(stamps):
        return False
    # a file may have become readable without a new modification time: by a change of permissions
    doubtful = [root / stamp[0] for stamp, row in index.rows.items() if row < 0]
    return not any(_readable(path, index.array.shape[-1]) for path in doubtful)


def _readable(path: Path, size: int) -> bool:
    try:
        load(path, size)
    except DataError:
        return False
    return True

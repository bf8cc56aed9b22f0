"""Fill an image cache: rows of unchanged files are copied, other files are decoded in parallel."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.decode import Shape, load, peek
from adagc.images.moments import tally_images
from adagc.images.progress import progress
from adagc.images.store.index import Index, Peek, Stamp, map_array, publish
from adagc.images.store.moments import new_moments, write_moments

CHUNK: Final = 512  # images between two flushes to disk: a killed build loses at most these
WORKERS: Final = min(8, os.cpu_count() or 1)


def build(
    root: Path, stamps: list[Stamp], folder: Path, old: Index | None, size: int | None, alpha: bool
) -> Index:
    """Write a new array and make it the current one; the caller must hold the lock of the folder.

    Args:
        root: Folder of the source files.
        stamps: Path, size and modification time of each source file.
        folder: Folder of the cache.
        old: The current state, whose rows are copied for files that did not change; None if there
            is none.
        size: Height and width of the stored images in pixels; None to choose one.
        alpha: Keep bands that files declare to be transparency.
    """
    peeks = _peek_all(root, stamps, old, alpha)
    if not peeks:
        complain(root, [stamp[0] for stamp in stamps], len(stamps))
    bands, dtype = agree(peeks)
    side = size or common_side([shape for shape, _ in peeks.values()])
    todo = [stamp for stamp in stamps if stamp in peeks]
    shape = (len(todo), bands, side, side)
    donors = list(_donors(folder, old, shape[1:], dtype))
    leftovers = [
        p for p in folder.iterdir() if p.name.lstrip(".").startswith(("images-", "moments-"))
    ]

    path = folder / f"images-{secrets.token_hex(6)}.npy"
    array = _allocate(path, shape, dtype)
    kept = new_moments(array)
    rows = {stamp: row for row, stamp in enumerate(todo)}
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as journal:
        for stamp in _fill(array, kept, root, rows, donors, journal, alpha):
            rows[stamp] = -1
    write_moments(path, kept)
    rows |= {stamp: -1 for stamp in stamps if stamp not in peeks}
    publish(folder, path, rows, peeks)
    for file in [*leftovers, path.with_suffix(".jsonl")]:
        file.unlink(missing_ok=True)
    return Index(path, map_array(path), rows, peeks)


def _peek_all(root: Path, stamps: list[Stamp], old: Index | None, alpha: bool) -> dict[Stamp, Peek]:
    """Shape and dtype of every file whose header can be read."""

    def peek_file(stamp: Stamp) -> Peek | None:
        if old is not None and stamp in old.peeks:
            return old.peeks[stamp]
        try:
            return peek(root / stamp[0], alpha=alpha)
        except DataError:
            return None

    with ThreadPoolExecutor(WORKERS) as pool:
        pairs = zip(stamps, pool.map(peek_file, stamps), strict=True)
        return {stamp: peeked for stamp, peeked in pairs if peeked is not None}


def agree(peeks: dict[Stamp, Peek]) -> tuple[int, np.dtype[Any]]:
    """The number of bands and the dtype that all files have in common.

    Float dtypes may be mixed. Any other mixture is a DataError that names two files.
    """
    bands: dict[int, str] = {}
    depths: dict[str, str] = {}
    for (file, _, _), (shape, dtype) in peeks.items():
        bands.setdefault(shape[0], file)
        # floats of any precision may be mixed; 8-bit and 16-bit images differ in scale
        depths.setdefault("float" if dtype.kind == "f" else dtype.name, file)
    for what, examples in (("bands", bands), ("depths", depths)):
        if len(examples) > 1:
            (a, first), (b, second) = list(examples.items())[:2]
            raise DataError(
                f"images of different {what}: {first} has {a}, {second} has {b}; "
                f"keep one kind per folder or convert them"
            )
    return next(iter(bands)), np.result_type(*{dtype for _, dtype in peeks.values()})


def common_side(shapes: Sequence[Shape]) -> int:
    """The side length if all images are squares of one size, else the median side, at most 256."""
    if len({shape[1:] for shape in shapes}) == 1 and shapes[0][1] == shapes[0][2]:
        return shapes[0][1]
    sides = np.array([shape[1:] for shape in shapes])
    return int(min(np.median(sides), 256))


def _donors(
    folder: Path, old: Index | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[tuple[NDArray[Any], dict[Stamp, int]]]:
    """Arrays from which finished rows of this shape and dtype can be copied, with their rows.

    These are the current array and those of builds that were killed.
    """
    if old is not None and old.array.shape[1:] == shape and old.array.dtype == dtype:
        yield old.array, old.rows
    for journal in folder.glob("images-*.jsonl"):
        done: dict[Stamp, int] = {}
        for line in journal.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line may be incomplete
                file, length, mtime, row = json.loads(line)
                done[file, length, mtime] = row
        with contextlib.suppress(OSError, ValueError):
            array = map_array(journal.with_suffix(".npy"))
            if array.shape[1:] == shape and array.dtype == dtype:
                yield array, done


def _allocate(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.memmap[Any, Any]:
    """Create a .npy file of this shape, with its disk space reserved, and map it for writing."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # The space is reserved now because writing to a memory map on a full disk would kill the
        # process without an error message.
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            path.unlink()
            raise DataError(
                f"{path.parent}: no room for {array.nbytes / 1e9:.1f} GB of decoded images; "
                f"free some space or set ADAGC_CACHE to another disk"
            ) from error
    return array


def _fill(
    array: np.memmap[Any, Any],
    kept: NDArray[Any],
    root: Path,
    rows: dict[Stamp, int],
    donors: Sequence[tuple[NDArray[Any], dict[Stamp, int]]],
    journal: TextIO,
    alpha: bool,
) -> Iterator[Stamp]:
    """Write every row of the array, and yield the files that cannot be decoded.

    Args:
        array: The new array, (N, bands, H, W).
        kept: Receives the moments of every image, (N, bands, 6).
        root: Folder of the source files.
        rows: The row of each file.
        donors: Arrays from which rows can be copied; see `_donors`.
        journal: Receives one line for every row that is safely on disk.
        alpha: Keep bands that files declare to be transparency.
    """

    def write_row(item: tuple[Stamp, int]) -> bool:
        """Copy or decode one image; False if it cannot be decoded."""
        stamp, row = item
        copies = (source[done[stamp]] for source, done in donors if done.get(stamp, -1) >= 0)
        image: NDArray[Any] | None = next(copies, None)
        try:
            if image is None:
                image = load(root / stamp[0], array.shape[-1], alpha=alpha)
        except DataError:
            return False
        array[row] = image
        kept[row] = tally_images(array[row : row + 1])[0]  # measured on the values as stored
        return True

    items = list(rows.items())
    with ThreadPoolExecutor(WORKERS) as pool, progress("decoding images", len(items)) as advance:
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            written = list(pool.map(write_row, chunk))
            array.flush()
            for (stamp, row), success in zip(chunk, written, strict=True):
                if success:
                    journal.write(json.dumps([*stamp, row]) + "\n")
                else:
                    yield stamp
            journal.flush()
            advance(len(chunk))


def complain(root: Path, bad: Sequence[str], total: int) -> None:
    """Raise a DataError if there are unreadable files.

    Args:
        root: Folder of the files.
        bad: The unreadable files.
        total: Number of all files.
    """
    if bad:
        names = ", ".join(bad[:3]) + (", ..." if len(bad) > 3 else "")
        raise DataError(
            f"{root}: {len(bad)} of {total} images cannot be read ({names}); "
            f"run adagc inspect, or pass skip_unreadable"
        )

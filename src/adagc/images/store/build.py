"""Fill an image cache: rows of unchanged files are copied, other files are decoded in parallel."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import no_space
from adagc.errors import DataError, NoSpaceError, examples
from adagc.images.decode import Header, load, peek, read_image, transparent
from adagc.images.moments import tally_images
from adagc.images.store.index import Index, Stamp, map_array, publish
from adagc.images.store.moments import new_moments, write_moments
from adagc.images.tiff import Shape
from adagc.progress import meter, tracked

CHUNK: Final = 512  # images between two flushes to disk: a killed build loses at most these
WORKERS: Final = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Reading:
    """How the files of a cache are read."""

    size: int | None = None  # height and width of the stored images in pixels; None to choose one
    alpha: bool | None = None  # keep bands declared to be transparency; None: by their values
    nodata: float | None = None  # number that stands for missing values


def build(
    root: Path, stamps: list[Stamp], folder: Path, old: Index | None, reading: Reading
) -> Index:
    """Write a new array and make it the current one; the caller must hold the lock of the folder.

    Args:
        root: Folder of the source files.
        stamps: Path, size and modification time of each source file.
        folder: Folder of the cache.
        old: The current state, whose rows are copied for files that did not change; None if there
            is none.
        reading: How files are read.
    """
    headers = _peek_all(root, stamps, old, reading.nodata)
    if not headers:
        complain(root, [stamp[0] for stamp in stamps], len(stamps))
    declared = [stamp[0] for stamp, header in headers.items() if header.alpha]
    alpha = reading.alpha
    if alpha is None:
        alpha = bool(declared) and not all_transparent(root, declared)
    bands, dtype = agree(headers, alpha)
    side = reading.size or common_side([header.shape for header in headers.values()])
    todo = [stamp for stamp in stamps if stamp in headers]
    shape = (len(todo), bands, side, side)
    donors = list(_donors(folder, old, shape[1:], dtype))
    leftovers = [
        p for p in folder.iterdir() if p.name.lstrip(".").startswith(("images-", "moments-"))
    ]

    path = folder / f"images-{secrets.token_hex(6)}.npy"
    rows = {stamp: row for row, stamp in enumerate(todo)}
    decode = partial(load, size=side, alpha=alpha, nodata=reading.nodata)
    with _room(path, math.prod(shape) * dtype.itemsize):
        array = _allocate(path, shape, dtype)
        kept = new_moments(array)
        with path.with_suffix(".jsonl").open("w", encoding="utf-8") as journal:
            for stamp in _fill(array, kept, root, rows, donors, journal, decode):
                rows[stamp] = -1
                del headers[stamp]
        write_moments(path, kept)
        rows |= {stamp: -1 for stamp in stamps if stamp not in headers}
        index = Index(path, map_array(path), rows, headers, alpha)
        publish(folder, index)
    for file in [*leftovers, path.with_suffix(".jsonl")]:
        file.unlink(missing_ok=True)
    return index


def _peek_all(
    root: Path, stamps: list[Stamp], old: Index | None, nodata: float | None
) -> dict[Stamp, Header]:
    """The header of every file that has a readable one."""

    def peek_file(stamp: Stamp) -> Header | None:
        if old is not None and stamp in old.headers:
            return old.headers[stamp]
        try:
            return peek(root / stamp[0], nodata=nodata)
        except DataError:
            return None

    with ThreadPoolExecutor(WORKERS) as pool:
        pairs = zip(
            tracked(stamps, "looking at images", unit="images"),
            pool.map(peek_file, stamps),
            strict=True,
        )
        return {stamp: header for stamp, header in pairs if header is not None}


def all_transparent(root: Path, files: Sequence[str]) -> bool:
    """Whether the last bands of these files, declared to be transparency, all look like it.

    One file with another band there decides for all: a dark or empty image of a near-infrared band
    may look like transparency.
    """

    def looks(file: str) -> bool:
        try:
            return transparent(read_image(root / file)[-1], peek(root / file).depth)
        except DataError:
            return True

    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            return all(pool.map(looks, files))
        finally:
            pool.shutdown(cancel_futures=True)


def transparency_notes(declared: int, total: int, *, kept: bool) -> list[str]:
    """What to say about a last band that files declare to be transparency; empty if none does.

    Args:
        declared: Number of files that do.
        total: Number of all files.
        kept: Whether the band is kept.
    """
    if not declared:
        return []
    many = f"{declared} of {total} images declare their last band to be transparency"
    if kept:
        return [f"{many}: it is kept as a band like the others; name the others with --bands if it"
                " is not one"]  # fmt: skip
    return [f"{many}: it is left out; name all bands with --bands to keep it"]


def agree(headers: dict[Stamp, Header], alpha: bool) -> tuple[int, np.dtype[Any]]:
    """The number of bands and the dtype that all files have in common.

    Float dtypes may be mixed. Any other mixture is a DataError that names two files.

    Args:
        headers: The headers of the files.
        alpha: Whether bands that are declared to be transparency are kept.
    """
    bands: dict[int, str] = {}
    depths: dict[str, str] = {}
    for (file, _, _), header in headers.items():
        bands.setdefault(header.shape[0] - (header.alpha and not alpha), file)
        # floats of any precision may be mixed; 8-bit and 16-bit images differ in scale
        depths.setdefault("float" if header.depth.kind == "f" else header.depth.name, file)
    for what, found in (("bands", bands), ("depths", depths)):
        if len(found) > 1:
            (a, first), (b, second) = list(found.items())[:2]
            raise DataError(
                f"images of different {what}: {first} has {a}, {second} has {b}; "
                f"keep one kind per folder or convert them"
            )
    return next(iter(bands)), np.result_type(*{header.dtype for header in headers.values()})


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
    np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # The space is reserved now because writing to a memory map on a full disk would kill the
        # process without an error message.
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return np.lib.format.open_memmap(path, mode="r+")


@contextlib.contextmanager
def _room(path: Path, size: int) -> Iterator[None]:
    """If the disk is full, delete what was written of the cache and say what it needs.

    Args:
        path: File of the images.
        size: Number of bytes that it needs.
    """
    try:
        yield
    except (OSError, NoSpaceError) as error:
        if isinstance(error, OSError) and no_space(error, path) is None:
            raise
        for file in path.parent.glob(f"*{path.stem.removeprefix('images')}.*"):
            file.unlink()  # images, journal and moments
        full = no_space(error, path, size) if isinstance(error, OSError) else error
        raise NoSpaceError(f"{full}, or set ADAGC_CACHE to another disk") from error


def _fill(
    array: np.memmap[Any, Any],
    kept: NDArray[Any],
    root: Path,
    rows: dict[Stamp, int],
    donors: Sequence[tuple[NDArray[Any], dict[Stamp, int]]],
    journal: TextIO,
    decode: Callable[[Path], NDArray[Any]],
) -> Iterator[Stamp]:
    """Write every row of the array, and yield the files that cannot be decoded.

    Args:
        array: The new array, (N, bands, H, W).
        kept: Receives the moments of every image, (N, bands, 7).
        root: Folder of the source files.
        rows: The row of each file.
        donors: Arrays from which rows can be copied; see `_donors`.
        journal: Receives one line for every row that is safely on disk.
        decode: Reads a file as it is stored.
    """

    def write_row(item: tuple[Stamp, int]) -> bool:
        """Copy or decode one image; False if it cannot be decoded."""
        stamp, row = item
        copies = (source[done[stamp]] for source, done in donors if done.get(stamp, -1) >= 0)
        image: NDArray[Any] | None = next(copies, None)
        try:
            if image is None:
                image = decode(root / stamp[0])
        except DataError:
            return False
        array[row] = image
        kept[row] = tally_images(array[row : row + 1])[0]  # measured on the values as stored
        return True

    items = list(rows.items())
    with (
        ThreadPoolExecutor(WORKERS) as pool,
        meter("decoding images", len(items), unit="images") as shown,
    ):
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            written = []
            for success in pool.map(write_row, chunk):
                written.append(success)
                shown.advance()
            array.flush()
            for (stamp, row), success in zip(chunk, written, strict=True):
                if success:
                    journal.write(json.dumps([*stamp, row]) + "\n")
                else:
                    yield stamp
            journal.flush()


def complain(root: Path, bad: Sequence[str], total: int) -> None:
    """Raise a DataError if there are unreadable files.

    Args:
        root: Folder of the files.
        bad: The unreadable files.
        total: Number of all files.
    """
    if bad:
        raise DataError(
            f"{root}: {len(bad)} of {total} images cannot be read ({examples(bad)}); "
            f"run adagc inspect to see why, or train without them: --skip-unreadable"
        )

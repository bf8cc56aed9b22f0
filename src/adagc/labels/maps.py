"""How much of each image each class covers, from maps that give the class of every pixel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.maps import count_codes
from adagc.images.store.place import locked
from adagc.labels.map_counts import Counts, CountsFile, keys_of
from adagc.progress import meter

_TOGETHER: Final = 256  # maps that one worker counts before it takes others
_SAVED: Final = 4096  # maps that a killed process has to count again at most
_NAMED: Final = 20  # maps that cannot be read and are named by an error

Broken = Callable[[Path, str], None]


def class_areas(
    files: Sequence[Path],
    codes: Mapping[int, int],
    classes: int,
    *,
    workers: int = 1,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    root: Path | None = None,
    broken: Broken | None = None,
) -> NDArray[np.float32]:
    """Share of the labelled pixels of each map that each class covers, (len(files), classes).

    A row sums to 1, or is zeros if the map has no labelled pixel.

    Args:
        files: The maps: PNG, TIFF, GeoTIFF or .npy files of one band.
        codes: Number of a pixel -> number of its class, from 0. Pixels of other numbers are not
            labelled. Several numbers may mean one class.
        classes: Number of classes.
        workers: Threads that count side by side.
        cache: File that keeps what was counted, for any `codes`: a map is counted once, unless it
            changes, also if the process is killed.
        progress: Told how many maps are done, and how many there are; None shows a meter.
        root: Folder to which `cache` names maps. None means the deepest one that holds all files:
            then a part of them may have to be counted again.
        broken: Told each map that cannot be read, and why; its row is zeros. Without it, such maps
            raise an error when all others are counted.

    Raises:
        DataError: Maps cannot be read; each is named in a line.
    """
    if any(not 0 <= number < classes for number in codes.values()):
        raise ValueError(f"codes must mean classes 0 to {classes - 1}, not {dict(codes)}")
    failed: dict[int, str] = {}
    if cache is None:
        parts = _counted(files, range(len(files)), workers, progress, failed)
        counts = Counts.join([part for part, _ in parts])
    else:
        counts = _with_cache(files, Path(cache), root, workers, progress, failed)
    _report(files, failed, broken)
    return _shares(counts, codes, classes)


def _with_cache(
    files: Sequence[Path],
    cache: Path,
    root: Path | None,
    workers: int,
    progress: Callable[[int, int], None] | None,
    failed: dict[int, str],
) -> Counts:
    """The counts of all files; those that the cache does not know are counted and added to it."""
    keys, missing = keys_of(files, root)
    gone = np.zeros(len(files), dtype=np.bool_)
    gone[missing] = True
    failed |= dict.fromkeys(missing, "no such file")
    stored = CountsFile(cache)
    known, counts = stored.read()
    rows = _rows_of(known, keys)
    if (rows[~gone] >= 0).all():
        return _in_order(counts, np.where(gone, -1, rows))
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        lock = contextlib.ExitStack()
        lock.enter_context(locked(cache))
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{cache} cannot be written ({reason}): choose another file") from None
    with lock:
        known, counts = stored.read()  # another process may have added to it during the wait
        rows = np.where(gone, -1, _rows_of(known, keys))
        todo = np.flatnonzero((rows < 0) & ~gone)
        found: list[Counts] = []
        waiting: list[tuple[Counts, Sequence[int]]] = []

        def save() -> None:
            done = np.array([i for _, some in waiting for i in some], dtype=np.int64)
            part = Counts.join([part for part, _ in waiting])
            found.append(part)
            good = np.array([int(i) not in failed for i in done], dtype=np.bool_)
            if good.any():
                stored.add(keys[done[good]], part.take(np.flatnonzero(good)))
            waiting.clear()

        try:
            for part, some in _counted(files, todo.tolist(), workers, progress, failed):
                waiting.append((part, some))
                if sum(len(rows) for _, rows in waiting) >= _SAVED:
                    save()
        finally:
            save()  # also what was done when somebody pressed Ctrl-C
        rows[todo] = len(known) + np.arange(len(todo))
        return _in_order(Counts.join([counts, *found]), rows)


def _counted(
    files: Sequence[Path],
    todo: Sequence[int],
    workers: int,
    progress: Callable[[int, int], None] | None,
    failed: dict[int, str],
) -> Iterator[tuple[Counts, Sequence[int]]]:
    """The counts of some files, a few together and in order, with their places in `files`.

    Args:
        files: All maps.
        todo: Places of those to count.
        workers: Number of threads.
        progress: See `class_areas`.
        failed: Receives the place of each map that cannot be read, and why.
    """

    def count(some: Sequence[int]) -> tuple[Counts, dict[int, str]]:
        found, bad = [], {}
        for i in some:
            try:
                found.append(count_codes(files[i]))
            except DataError as error:
                bad[i] = str(error)
                found.append((np.zeros(0, np.int32), np.zeros(0, np.uint32)))
        lengths = np.array([len(codes) for codes, _ in found], dtype=np.uint32)
        codes = np.concatenate([codes for codes, _ in found])
        return Counts(lengths, codes, np.concatenate([pixels for _, pixels in found])), bad

    chunks = [todo[start : start + _TOGETHER] for start in range(0, len(todo), _TOGETHER)]
    began = time.monotonic()
    done = 0
    with meter("counting the pixels of maps", len(todo), unit="maps") as shown:
        for some, (counts, bad) in zip(chunks, _each(count, chunks, workers), strict=True):
            failed |= bad
            done += len(some)
            rate = done / max(time.monotonic() - began, 1e-9)
            told = f"{done:,} of {len(todo):,} maps, {rate:,.0f} per second"
            shown.update(done, note=told)
            if progress is not None:
                progress(done, len(todo))
            yield counts, some


def _each(
    count: Callable[[Sequence[int]], tuple[Counts, dict[int, str]]],
    chunks: Sequence[Sequence[int]],
    workers: int,
) -> Iterator[tuple[Counts, dict[int, str]]]:
    if workers <= 1 or len(chunks) <= 1:
        yield from map(count, chunks)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(count, chunks)
    finally:
        pool.shutdown(cancel_futures=True)


def _rows_of(known: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The last row of `known` that is each of the keys; -1 for none."""
    if not len(known):
        return np.full(len(keys), -1, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], keys, side="right") - 1
    rows = order[np.maximum(place, 0)]
    return np.where(known[rows] == keys, rows, -1)


def _in_order(counts: Counts, rows: NDArray[np.int64]) -> Counts:
    """The counts of these rows; a map that is nowhere (-1) has no pixels."""
    none = Counts(np.zeros(1, np.uint32), np.zeros(0, np.int32), np.zeros(0, np.uint32))
    every = Counts.join([counts, none])
    return every.take(np.where(rows < 0, len(every.lengths) - 1, rows))


def _report(files: Sequence[Path], failed: Mapping[int, str], broken: Broken | None) -> None:
    if broken is not None:
        for i in sorted(failed):
            broken(files[i], failed[i])
    elif failed:
        lines = [f"{files[i]}: {failed[i]}" for i in sorted(failed)[:_NAMED]]
        if len(failed) > _NAMED:
            lines.append(f"... and {len(failed) - _NAMED:,} more")
        many = f"{len(failed):,} of {len(files):,} maps cannot be used: replace or remove them"
        raise DataError("\n".join([many, *lines]))


def _shares(counts: Counts, codes: Mapping[int, int], classes: int) -> NDArray[np.float32]:
    """The share of labelled pixels of each map that each class has."""
    count = len(counts.lengths)
    areas: NDArray[np.float32] = np.zeros((count, classes), dtype=np.float32)
    if not codes or not len(counts.codes):
        return areas
    numbers = np.array(sorted(codes), dtype=np.int64)
    meanings = np.array([codes[number] for number in numbers.tolist()], dtype=np.int64)
    place = np.minimum(np.searchsorted(numbers, counts.codes), len(numbers) - 1)
    known = numbers[place] == counts.codes
    rows = np.repeat(np.arange(count), counts.lengths)[known]
    bins = rows * classes + meanings[place[known]]
    pixels = np.bincount(bins, weights=counts.pixels[known], minlength=count * classes)
    pixels = pixels.reshape(count, classes)
    labelled = pixels.sum(axis=1, keepdims=True)
    np.divide(pixels, labelled, out=areas, where=labelled > 0, casting="same_kind")
    return areas


__all__ = ["class_areas"]

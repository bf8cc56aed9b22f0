"""Write some patches of a store: what worker processes do for `adagc prepare`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.store import DATABASE, StoreForm
from adagc.errors import DataError
from adagc.images.bigearthnet import lmdb as databases
from adagc.images.bigearthnet.bands import RADAR, SIDE, SIDES
from adagc.images.bigearthnet.measured import RECORD, measure_patches
from adagc.images.bigearthnet.resample import Resample, enlarge
from adagc.images.bigearthnet.shards import PARTS, SHARD, shard_file, shard_shape
from adagc.images.bigearthnet.sources import NativeSource

# Patches that are written together and are on the disk at once; a killed process loses at most
# these. Waiting for the disk and telling the parent cost little for so many.
CHUNK: Final = 256
_BLOCK: Final = 16  # patches that are worked on together, so that they stay in the cache


@dataclass(frozen=True)
class Work:
    """What a worker has to know of the store."""

    folder: Path
    form: StoreForm
    resample: Resample
    parts: tuple[str, ...]  # of PARTS: the halves that are there
    count: int  # number of patches of the whole store
    database_size: int = 0  # bytes that an LMDB store may grow to


@dataclass(frozen=True)
class Chunk:
    """Patches to write: rows start, start + 1, ... of the store."""

    start: int
    source: NativeSource  # of these patches only, so that little is sent to a worker
    names: Sequence[str]
    radar: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Written:
    """What became of the patches start, start + 1, ..."""

    start: int
    records: NDArray[np.void]  # moments of each
    checksums: NDArray[np.uint32]  # (n, 2), of radar and optical values as stored
    bad: dict[int, str] = field(default_factory=dict)  # row -> why it cannot be read


class Writer:
    """Reads patches and writes them to a store that several writers write to."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._open = ExitStack()
        self._database: Any = None
        if work.form == "lmdb":
            place = databases.writing(work.folder / DATABASE, work.database_size)
            self._database = self._open.enter_context(place)

    def close(self) -> None:
        """Close what is open."""
        self._open.close()

    def write(self, chunk: Chunk) -> Written:
        """Read and write a chunk; all of it is on the disk then."""
        work, count = self._work, len(chunk)
        records = np.zeros(count, dtype=RECORD)
        checksums = np.zeros((count, len(PARTS)), dtype=np.uint32)
        bad: dict[int, str] = {}
        with ExitStack() as kept:
            memmap = work.form == "memmap"
            shards = {
                part: kept.enter_context(_opened(work, part, chunk.start))
                for part in work.parts
                if memmap
            }
            entries: dict[str, bytes] = {}
            for first in range(0, count, _BLOCK):
                places = range(first, min(first + _BLOCK, count))
                native = self._read(chunk, places, bad)
                whole = {
                    part: _enlarged(native[part], PARTS[part], work.resample) for part in work.parts
                }
                block = slice(places.start, places.stop)
                records[block] = measure_patches(len(places), whole.get("s1"), whole.get("s2"))
                for column, part in enumerate(PARTS):
                    if part in shards:
                        checksums[block, column] = [zlib.crc32(image) for image in whole[part]]
                        _write_rows(shards[part], work, part, chunk.start + first, whole[part])
                    elif part in work.parts:
                        found = _encoded(chunk, part, places, native[part], bad)
                        for place, (name, entry) in found.items():
                            checksums[place, column] = zlib.crc32(entry)
                            entries[name] = entry
            for file in shards.values():
                file.flush()
                os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
        if entries:
            # One writer at a time: nothing is computed while others wait.
            with self._database.begin(write=True) as transaction:
                for name, entry in sorted(entries.items()):
                    transaction.put(name.encode(), entry)
        return Written(
            chunk.start,
            records,
            checksums,
            {chunk.start + place: why for place, why in bad.items()},
        )

    def _read(
        self, chunk: Chunk, places: range, bad: dict[int, str]
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """The bands of these patches as files have them; zeros for those that cannot be read."""
        parts = self._work.parts
        native = {part: _empty(PARTS[part][0], len(places)) for part in parts}
        for number, place in enumerate(places):
            try:
                for part in parts:
                    bands = PARTS[part][0]
                    found = chunk.source.patch(place, bands)
                    for band, values in zip(bands, found, strict=True):
                        native[part][band][number] = values
            except DataError as error:
                bad[place] = str(error)
                for part in parts:  # what was read of it before must not remain
                    for values in native[part].values():
                        values[number] = 0
        return native


def _encoded(
    chunk: Chunk,
    part: str,
    places: range,
    native: dict[str, NDArray[Any]],
    bad: dict[int, str],
) -> dict[int, tuple[str, bytes]]:
    """Name and entry of the patches of these places that could be read."""
    names = chunk.radar if part == "s1" else chunk.names
    return {
        place: (names[place], databases.encode({b: v[number] for b, v in native.items()}))
        for number, place in enumerate(places)
        if place not in bad
    }


def _empty(bands: Sequence[str], count: int) -> dict[str, NDArray[Any]]:
    dtype = np.float32 if bands == RADAR else np.uint16
    return {band: np.zeros((count, SIDES[band], SIDES[band]), dtype=dtype) for band in bands}


def _enlarged(
    native: dict[str, NDArray[Any]],
    part: tuple[tuple[str, ...], np.dtype[Any]],
    resample: Resample,
) -> NDArray[Any]:
    """All bands of a part at 120 pixels per side, (n, bands, 120, 120)."""
    bands, dtype = part
    out = np.empty((len(native[bands[0]]), len(bands), SIDE, SIDE), dtype=dtype)
    for place, band in enumerate(bands):
        enlarge(native[band], out[:, place], resample)
    return out


def _opened(work: Work, part: str, start: int) -> BinaryIO:
    """The shard that this row of the store is in, to be written past its memory map.

    So a full disk is an error that is told.
    """
    return shard_file(work.folder, part, start // SHARD).open("r+b")


def _write_rows(file: BinaryIO, work: Work, part: str, start: int, values: NDArray[Any]) -> None:
    """Write rows start, start + 1, ... of the store into their shard."""
    number, row = divmod(start, SHARD)
    size = values[0].nbytes
    header = os.fstat(file.fileno()).st_size - shard_shape(part, number, work.count)[0] * size
    file.seek(header + row * size)
    file.write(values.data.cast("B"))


_writer: Writer | None = None  # of a worker process


def start_worker(work: Work) -> None:
    """Set up a worker process, which ends when its parent is gone."""
    global _writer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end_with_parent() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end_with_parent, daemon=True).start()
    _writer = Writer(work)


def write_chunk(chunk: Chunk) -> Written:
    """`Writer.write` in a worker process."""
    assert _writer is not None
    return _writer.write(chunk)


__all__ = ["CHUNK", "Chunk", "Work", "Writer", "Written", "start_worker", "write_chunk"]

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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.store import DATABASE, StoreForm
from adagc.errors import DataError
from adagc.images.bigearthnet import lmdb as databases
from adagc.images.bigearthnet.bands import RADAR, SIDE, SIDES
from adagc.images.bigearthnet.measured import measure_patches
from adagc.images.bigearthnet.resample import Resample, enlarge
from adagc.images.bigearthnet.shards import PARTS, SHARD, shard_file, shard_shape
from adagc.images.bigearthnet.sources import NativeSource

CHUNK: Final = 64  # patches that are written together; a killed process loses at most these


@dataclass(frozen=True)
class Work:
    """What a worker has to know."""

    source: NativeSource
    names: Sequence[str]
    radar: Sequence[str]
    folder: Path
    form: StoreForm
    resample: Resample
    parts: tuple[str, ...]  # of PARTS: the halves that are there
    database_size: int = 0  # bytes that an LMDB store may grow to

    @property
    def count(self) -> int:
        """Number of patches of the whole store."""
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

    def write(self, start: int) -> Written:
        """Read and write the chunk that begins with this patch; all of it is on the disk then."""
        work = self._work
        rows = range(start, min(start + CHUNK, work.count))
        native = {part: _empty(PARTS[part][0], len(rows)) for part in work.parts}
        bad: dict[int, str] = {}
        for place, row in enumerate(rows):
            try:
                for part in work.parts:
                    bands = PARTS[part][0]
                    for band, values in zip(bands, work.source.patch(row, bands), strict=True):
                        native[part][band][place] = values
            except DataError as error:
                bad[row] = str(error)
                for part in work.parts:  # what was read of it before must not remain
                    for values in native[part].values():
                        values[place] = 0
        whole = {part: _enlarged(native[part], PARTS[part], work.resample) for part in work.parts}
        records = measure_patches(len(rows), whole.get("s1"), whole.get("s2"))
        checksums = np.zeros((len(rows), len(PARTS)), dtype=np.uint32)
        if work.form == "memmap":
            for part, values in whole.items():
                own = list(PARTS).index(part)
                checksums[:, own] = [zlib.crc32(image) for image in values]
                _write_rows(work, part, start, values)
        else:
            with self._database.begin(write=True) as transaction:
                for place, row in enumerate(rows):
                    if row in bad:
                        continue
                    for part, own_bands in native.items():
                        entry = databases.encode({b: v[place] for b, v in own_bands.items()})
                        checksums[place, list(PARTS).index(part)] = zlib.crc32(entry)
                        name = work.radar[row] if part == "s1" else work.names[row]
                        transaction.put(name.encode(), entry)
        return Written(start, records, checksums, bad)


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


def _write_rows(work: Work, part: str, start: int, values: NDArray[Any]) -> None:
    """Write rows of a shard, past its memory map: so a full disk is an error that is told."""
    number, row = divmod(start, SHARD)
    path = shard_file(work.folder, part, number)
    size = values[0].nbytes
    total = shard_shape(part, number, work.count)[0] * size
    with path.open("r+b") as file:
        header = path.stat().st_size - total
        file.seek(header + row * size)
        file.write(np.ascontiguousarray(values).data.cast("B"))
        file.flush()
        os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())


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


def write_chunk(start: int) -> Written:
    """`Writer.write` in a worker process."""
    assert _writer is not None
    return _writer.write(start)


__all__ = ["CHUNK", "Work", "Writer", "Written", "start_worker", "write_chunk"]

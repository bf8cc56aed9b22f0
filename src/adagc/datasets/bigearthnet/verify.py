"""`adagc inspect --verify`: whether every value of a prepared store is still what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from adagc.datasets.bigearthnet.store import DATABASE, Store, open_store
from adagc.errors import DataError
from adagc.images.bigearthnet.lmdb import database
from adagc.images.bigearthnet.shards import PARTS, SHARD, ShardSource
from adagc.progress import meter

_TOGETHER = 64  # patches that a thread checks before it takes others
_THREADS = min(8, os.cpu_count() or 1)  # reading waits for the disk


@dataclass(frozen=True)
class Verified:
    """The result of reading a whole store."""

    patches: int
    damaged: tuple[str, ...]  # names of the patches with other values than were written


def verify(folder: Path) -> Verified:
    """Read every value of a store and compare it with its checksum."""
    store = open_store(folder)
    check = _of_shards(store) if isinstance(store.source, ShardSource) else _of_database(store)
    count = len(store.patches)
    damaged: list[int] = []
    chunks = [range(start, min(start + _TOGETHER, count)) for start in range(0, count, _TOGETHER)]
    with ThreadPoolExecutor(_THREADS) as pool, meter("verifying", count, unit="patches") as shown:
        for chunk, bad in zip(
            chunks, pool.map(lambda rows: [r for r in rows if not check(r)], chunks), strict=True
        ):
            damaged += bad
            shown.advance(len(chunk))
    return Verified(count, tuple(store.patches.names[row] for row in damaged))


def _parts(store: Store) -> list[tuple[int, str]]:
    there = {"s1": store.plan.radar, "s2": store.plan.optical}
    return [(column, part) for column, part in enumerate(PARTS) if there[part]]


def _of_shards(store: Store) -> Callable[[int], bool]:
    source, parts = store.source, _parts(store)
    assert isinstance(source, ShardSource)

    def check(row: int) -> bool:
        number, place = divmod(int(store.rows[row]), SHARD)
        try:
            found = [zlib.crc32(source.shard(part, number)[place]) for _, part in parts]
        except DataError:
            return False
        return found == [int(store.checksums[row, column]) for column, _ in parts]

    return check


def _of_database(store: Store) -> Callable[[int], bool]:
    entries_of, parts = database(store.folder / DATABASE), _parts(store)
    names = {"s1": store.patches.radar, "s2": store.patches.names}

    def check(row: int) -> bool:
        entries = [entries_of.transaction.get(names[part][row].encode()) for _, part in parts]
        found = [None if entry is None else zlib.crc32(entry) for entry in entries]
        return found == [int(store.checksums[row, column]) for column, _ in parts]

    return check


__all__ = ["Verified", "verify"]

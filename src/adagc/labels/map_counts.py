"""A file of what maps of classes hold: how many pixels of each number, map by map.

It keeps the numbers of the pixels, not classes, so that it serves any list of classes. It is a row
of blocks, each with the counts of some maps and a checksum. Blocks are only ever added at the end:
what a killed process has counted before is there, and a block that it has not finished is cut off.
A map is known by its path below a folder, its size and its modification time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import append
from adagc.errors import DataError

log = logging.getLogger(__name__)

_MAGIC: Final = b"adagcMC1"
_HEAD: Final = struct.Struct("<8sIII")  # magic, number of maps, number of counts, checksum


@dataclass(frozen=True)
class Counts:
    """How many pixels of each number some maps hold.

    The numbers of the first map come first; `lengths` says how many different ones each map has.
    """

    lengths: NDArray[np.uint32]  # (N,)
    codes: NDArray[np.int32]  # (sum of lengths,)
    pixels: NDArray[np.uint32]  # (sum of lengths,)

    @classmethod
    def join(cls, parts: Sequence[Counts]) -> Counts:
        """The counts of all maps, in this order."""
        none = cls(np.zeros(0, np.uint32), np.zeros(0, np.int32), np.zeros(0, np.uint32))
        several = [none, *parts]
        return cls(
            np.concatenate([part.lengths for part in several]),
            np.concatenate([part.codes for part in several]),
            np.concatenate([part.pixels for part in several]),
        )

    def take(self, rows: NDArray[np.int64]) -> Counts:
        """The counts of these maps, in this order."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        lengths = self.lengths[rows].astype(np.int64)
        # Place of each wanted count: the first one of its map, and then one after the other.
        firsts = np.repeat((ends - self.lengths)[rows] - (np.cumsum(lengths) - lengths), lengths)
        places = firsts + np.arange(len(firsts))
        return Counts(self.lengths[rows], self.codes[places], self.pixels[places])


class CountsFile:
    """The counts of maps that were counted before, in a file.

    Args:
        path: The file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0  # bytes of the file that are whole blocks

    def read(self) -> tuple[NDArray[np.uint64], Counts]:
        """The keys of all maps in the file and their counts; a later one replaces an earlier."""
        keys: list[NDArray[np.uint64]] = []
        parts: list[Counts] = []
        self._end = 0
        for some, counts, end in self._blocks():
            keys.append(some)
            parts.append(counts)
            self._end = end
        return np.concatenate([np.zeros(0, np.uint64), *keys]), Counts.join(parts)

    def add(self, keys: NDArray[np.uint64], counts: Counts) -> None:
        """Write counts behind the last whole block; the caller holds the lock of the file."""
        body = b"".join(
            values.astype(f"<{values.dtype.kind}{values.dtype.itemsize}").tobytes()
            for values in (keys, counts.lengths, counts.codes, counts.pixels)
        )
        block = _HEAD.pack(_MAGIC, len(keys), len(counts.codes), zlib.crc32(body)) + body
        if self.path.exists() and self.path.stat().st_size != self._end:
            os.truncate(self.path, self._end)
        append(self.path, block)
        self._end += len(block)

    def _blocks(self) -> Iterator[tuple[NDArray[np.uint64], Counts, int]]:
        """Keys, counts and place of the end of each whole block."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        if content and not _MAGIC.startswith(content[: len(_MAGIC)]):
            raise DataError(f"{self.path} is no file of counted maps: choose another one")
        at = 0
        while at < len(content):
            end = at + _HEAD.size
            whole = len(content) >= end
            if whole:
                magic, maps, several, checksum = _HEAD.unpack_from(content, at)
                body, end = end, end + 12 * maps + 8 * several
                whole = magic == _MAGIC and zlib.crc32(content[body:end]) == checksum
            if not whole or end > len(content):
                log.warning(
                    "%s is damaged after %d bytes, as by a process that was killed: what follows"
                    " is counted again",
                    self.path,
                    at,
                )
                return
            keys = np.frombuffer(content, "<u8", maps, body)
            lengths = np.frombuffer(content, "<u4", maps, body + 8 * maps)
            codes = np.frombuffer(content, "<i4", several, body + 12 * maps)
            pixels = np.frombuffer(content, "<u4", several, body + 12 * maps + 4 * several)
            yield keys, Counts(lengths, codes, pixels), end
            at = end


def keys_of(files: Sequence[Path], root: Path | None) -> tuple[NDArray[np.uint64], list[int]]:
    """What each file is known by, and which files are not there.

    Args:
        files: The files.
        root: Folder to which names are relative; None for the deepest one that holds all files.
    """
    names = [os.fspath(file) for file in files]
    # The first and the last name have the fewest characters in common.
    ends = [min(names, default=""), max(names, default="")]
    start = os.path.commonprefix(ends) if root is None else f"{root}{os.sep}"  # noqa: RUF071
    start = start[: start.rfind(os.sep) + 1]
    keys = np.zeros(len(names), dtype=np.uint64)
    missing = []
    for i, name in enumerate(names):
        try:
            stat = os.stat(name)  # noqa: PTH116 (half of the time of Path.stat)
        except OSError:
            missing.append(i)
            continue
        told = f"{name.removeprefix(start)}\0{stat.st_size}\0{stat.st_mtime_ns}"
        digest = hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=8).digest()
        keys[i] = int.from_bytes(digest, "little")
    return keys, missing


__all__ = ["Counts", "CountsFile", "keys_of"]

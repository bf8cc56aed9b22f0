"""What is computed so far, in a file beside the output: a killed command goes on from there.

The file holds a fingerprint of the work, a checksum per block, and a record of fixed size per
block. A block counts as done if its checksum fits, so that one that was cut off is done again.
Each process writes a file of its own; what it has not done itself it may find in those of others.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import no_space
from adagc.errors import BusyError

_MAGIC = b"adagc predict 1\n"
_ENTRY = 8  # bytes per block in the table: whether it is written, and its checksum
_WRITTEN = 0x61646167


class Records(Protocol):
    """One record per block."""

    def __contains__(self, block: int) -> bool: ...
    def write(self, block: int, record: bytes) -> None:
        """Keep the record of a block."""
        ...

    def read(self, block: int) -> bytes:
        """The record of a block that was written."""
        ...


class MemoryRecords:
    """Records in memory, for work that is done in a moment or leaves no file."""

    def __init__(self) -> None:
        self._records: dict[int, bytes] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._records

    def write(self, block: int, record: bytes) -> None:
        """See `Records.write`."""
        self._records[block] = record

    def read(self, block: int) -> bytes:
        """See `Records.read`."""
        return self._records[block]


class Journal:
    """Records in a file; a context in which no other process may write this file.

    Args:
        path: The file.
        fingerprint: 32 bytes that say which work it is; a file of other work is replaced.
        sizes: Bytes in the record of each block.
        readonly: Read what another process writes; the file need not exist yet.
    """

    def __init__(
        self, path: Path, fingerprint: bytes, sizes: Sequence[int], *, readonly: bool = False
    ) -> None:
        self.path, self._head = path, _MAGIC + fingerprint
        self._sizes = np.asarray(sizes, dtype=np.int64)
        table = len(self._head) + _ENTRY * len(self._sizes)
        self._offsets = table + np.concatenate([[0], self._sizes.cumsum()])
        self._done: set[int] = set()
        self._file = -1
        self.continued = False
        if readonly:
            self.refresh()
        else:
            self._create()

    def __contains__(self, block: int) -> bool:
        return block in self._done

    def __len__(self) -> int:
        return len(self._done)

    def write(self, block: int, record: bytes) -> None:
        """See `Records.write`."""
        assert len(record) == self._sizes[block]
        entry = np.array([_WRITTEN, zlib.crc32(record)], dtype="<u4").tobytes()
        try:
            _write_at(self._file, record, int(self._offsets[block]))
            _write_at(self._file, entry, len(self._head) + _ENTRY * block)
        except OSError as error:
            error.filename = str(self.path)
            raise no_space(error, self.path, int(self._offsets[-1])) or error from None
        self._done.add(block)

    def read(self, block: int) -> bytes:
        """See `Records.read`."""
        return os.pread(self._file, int(self._sizes[block]), int(self._offsets[block]))

    def refresh(self) -> None:
        """Look again what another process has written."""
        if self._file < 0:
            with suppress(OSError):
                self._file = os.open(self.path, os.O_RDONLY)
        if self._file >= 0:
            self._find()
            if not self._fits():
                self.close()  # of other work; its owner replaces the file

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _create(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._lock()
            if self._fits():
                self._find()
                self.continued = bool(self._done)
                return
            os.ftruncate(self._file, 0)
            whole = int(self._offsets[-1])
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, whole)  # a full disk shows now, not in an hour
            else:
                os.ftruncate(self._file, whole)
            _write_at(self._file, self._head, 0)
        except OSError as error:
            if self._file >= 0 and not self._fits():
                self.close()
                self.path.unlink(missing_ok=True)
            error.filename = str(self.path)
            raise no_space(error, self.path, int(self._offsets[-1])) or error from None

    def _lock(self) -> None:
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise BusyError(
                f"{self.path} is being written by another process: wait until it has ended, or"
                " choose another --out"
            ) from None
        except OSError:
            pass  # a network disk without locks

    def _fits(self) -> bool:
        """Whether the file holds records of this work."""
        return os.pread(self._file, len(self._head), 0) == self._head

    def _find(self) -> None:
        """Note which blocks are written and whole."""
        raw = os.pread(self._file, _ENTRY * len(self._sizes), len(self._head))
        if len(raw) < _ENTRY * len(self._sizes):
            return
        table: NDArray[np.uint32] = np.frombuffer(raw, dtype="<u4").reshape(-1, 2)
        for block in np.flatnonzero(table[:, 0] == _WRITTEN).tolist():
            if block not in self._done and zlib.crc32(self.read(block)) == table[block, 1]:
                self._done.add(block)


def _write_at(file: int, content: bytes, offset: int) -> None:
    """Write all of the content, also where the system takes only a part at a time."""
    while content:
        count = os.pwrite(file, content, offset)
        content, offset = content[count:], offset + count

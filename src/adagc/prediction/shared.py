"""Work that leaves a file: a journal beside it, and several processes that share the work.

They are started by torchrun or srun. Each does its part of the blocks and keeps a journal of its
own. The first one waits until all blocks are in some journal, and writes the output from them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from adagc.errors import DataError
from adagc.prediction.journal import Journal, MemoryRecords, Records
from adagc.prediction.work import Work, perform
from adagc.progress import meter

T = TypeVar("T")
log = logging.getLogger(__name__)

_BETWEEN = 0.2  # seconds from one look at the journals of others to the next


def rank() -> int:
    """Number of this process among those that work together, counted from 0."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def world() -> int:
    """Number of processes that work together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_STEP_NUM_TASKS", "1")))


def recorded(
    path: Path,
    fingerprint: bytes,
    work: Work,
    write: Callable[[Records], T],
    *,
    workers: int = 1,
) -> T | None:
    """Do what is left of some work, then write its output.

    Work of a single block leaves no journal.

    Args:
        path: The output.
        fingerprint: Which work it is.
        work: The work.
        write: Writes the output from the records of all blocks.
        workers: Number of processes that this one starts.

    Returns:
        What `write` returns; None in all but the first of several processes.
    """
    many = len(work.source.counts) > 1
    if not many and rank() > 0:
        return None
    journals = None
    if many:
        journals = Journals(path, fingerprint, work.sizes)
        if done := journals.continued:
            log.info("continued: %d of %d blocks are done", done, len(work.source.counts))
    records: Records = journals or MemoryRecords()
    try:
        mine = range(rank(), len(work.source.counts), world()) if many else None
        perform(work, records, workers=workers, mine=mine)
        if rank() > 0:
            return None
        if journals is not None:
            journals.wait()
        written = write(records)
        if journals is not None:
            journals.remove()
        return written
    except DataError:
        if journals is not None:
            journals.remove()  # another input is other work
        raise
    finally:
        if journals is not None:
            journals.close()


@contextmanager
def folder_of(path: Path) -> Iterator[None]:
    """Make the folders of a file; those that were made disappear if nothing is written to them."""
    missing = [folder for folder in path.absolute().parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # something is in it: a journal, with which work goes on
                folder.rmdir()
        raise


def fingerprint(*parts: object) -> bytes:
    """What must stay the same for records to be used again."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).digest()


class Journals:
    """The journal of this process, and those of others, which it reads.

    Args:
        out: The output, beside which the journals are.
        fingerprint: Which work it is.
        sizes: Bytes in the record of each block.
    """

    def __init__(self, out: Path, fingerprint: bytes, sizes: Sequence[int]) -> None:
        self._blocks = len(sizes)
        self.own = Journal(_place(out, rank()), fingerprint, sizes)
        places = {_place(out, number) for number in range(world())} | set(_existing(out))
        self._others = [
            Journal(place, fingerprint, sizes, readonly=True)
            for place in sorted(places - {self.own.path})
        ]

    @property
    def continued(self) -> int:
        """Number of blocks that are done already."""
        return sum(block in self for block in range(self._blocks))

    def __contains__(self, block: int) -> bool:
        return block in self.own or any(block in other for other in self._others)

    def write(self, block: int, record: bytes) -> None:
        """See `Records.write`."""
        self.own.write(block, record)

    def read(self, block: int) -> bytes:
        """See `Records.read`."""
        return next(one for one in (self.own, *self._others) if block in one).read(block)

    def wait(self) -> None:
        """Wait until all blocks are done, by this process or by others."""
        with meter("waiting for other processes", self._blocks, unit="blocks") as shown:
            while (done := self.continued) < self._blocks:
                shown.update(done)
                time.sleep(_BETWEEN)
                for other in self._others:
                    other.refresh()

    def close(self) -> None:
        """Close all files, which stay."""
        for one in (self.own, *self._others):
            one.close()

    def remove(self) -> None:
        """Delete all files, when the output is written."""
        self.close()
        for one in (self.own, *self._others):
            one.path.unlink(missing_ok=True)


def _place(out: Path, number: int) -> Path:
    return out.with_name(f"{out.name}.progress{f'.{number}' if number else ''}")


def _existing(out: Path) -> list[Path]:
    """Journals of earlier calls with other numbers of processes."""
    return [path for path in out.parent.glob(f"{out.name}.progress*") if path.is_file()]

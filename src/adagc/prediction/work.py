"""Computing all blocks of a source, alone or in several processes, with the same result."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError
from adagc.prediction.journal import Records
from adagc.prediction.sources import Block, Source
from adagc.progress import Meter, meter

log = logging.getLogger(__name__)

Compute = Callable[[NDArray[Any]], NDArray[np.float32]]  # (n, ...) raw values to (n, width) numbers


@dataclass(frozen=True)
class Result:
    """What was computed of the rows of a block."""

    known: NDArray[np.float32]  # (n,) share of each row that has values
    numbers: NDArray[np.float32]  # (n, width), such as probabilities; NaN where a row has none
    mask: bytes

    def packed(self) -> bytes:
        """As it is kept in a record."""
        return np.column_stack([self.known, self.numbers]).astype("<f4").tobytes() + self.mask

    @classmethod
    def unpacked(cls, record: bytes, rows: int, width: int) -> Result:
        """The inverse of `packed`."""
        end = 4 * rows * (width + 1)
        table = np.frombuffer(record[:end], dtype="<f4").reshape(rows, width + 1)
        return cls(table[:, 0], table[:, 1:], record[end:])


@dataclass(frozen=True)
class Work:
    """What is computed of the rows of a source."""

    source: Source
    compute: Compute
    width: int  # how many numbers of every row
    batch: int  # rows that are computed together
    # Makes `compute` in another process, for this many threads; None: this process does it all.
    again: Callable[[int], Compute] | None = None
    doing: str = "predicting"

    @property
    def sizes(self) -> list[int]:
        """Bytes in the record of each block."""
        pairs = zip(self.source.counts, self.source.extra, strict=True)
        return [4 * count * (self.width + 1) + extra for count, extra in pairs]

    def results(self, records: Records) -> list[Result]:
        """The results of all blocks, from their records."""
        return [
            Result.unpacked(records.read(block), count, self.width)
            for block, count in enumerate(self.source.counts)
        ]


def compute_block(compute: Compute, block: Block, width: int, batch: int) -> Result:
    """The numbers of all rows of a block that have values."""
    found = np.full((len(block.known), width), np.nan, dtype=np.float32)
    rows = np.flatnonzero(block.known > 0)
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        found[some] = compute(block.gather(some))
    return Result(block.known, found, block.mask)


def perform(
    work: Work, records: Records, *, workers: int = 1, mine: Sequence[int] | None = None
) -> None:
    """Compute the blocks that have no record yet, and keep their records.

    Args:
        work: What is computed.
        records: Where results are kept.
        workers: Number of processes.
        mine: Which blocks to do; None for all.
    """
    source = work.source
    wanted = range(len(source.counts)) if mine is None else mine
    left = [block for block in wanted if block not in records]
    total = sum(source.counts[block] for block in wanted)
    done = total - sum(source.counts[block] for block in left)
    with meter(work.doing, total, unit=source.unit) as shown:
        rate = _Rate(shown, source.unit, done)

        def keep(block: int, record: bytes) -> None:
            records.write(block, record)
            rate.add(source.counts[block])

        if workers > 1 and len(left) > 1 and work.again is not None:
            _in_processes(work, work.again, left, min(workers, len(left)), keep)
        else:
            for block, content in _ahead(source, left):
                keep(block, compute_block(work.compute, content, work.width, work.batch).packed())


class _Rate:
    """Tells a meter what is done, and how much per second since the first block was done."""

    def __init__(self, shown: Meter, unit: str, done: int) -> None:
        self._shown, self._unit = shown, unit
        self._begin, self._since = float(done), time.monotonic()
        shown.begin_at(done)

    def add(self, count: int) -> None:
        done = self._shown.done + count
        speed = (done - self._begin) / max(time.monotonic() - self._since, 1e-9)
        shown = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
        amount = f"{done:,.0f} of {self._shown.total:,.0f} {self._unit}, {shown} per second"
        self._shown.update(done, note=amount)


def _ahead(source: Source, blocks: Sequence[int]) -> Iterator[tuple[int, Block]]:
    """The blocks, each read by another thread while the one before it is predicted."""
    with ThreadPoolExecutor(1) as reader:
        coming: Future[Block] | None = None
        for number, block in enumerate(blocks):
            content = source.read(block) if coming is None else coming.result()
            after = blocks[number + 1] if number + 1 < len(blocks) else None
            coming = None if after is None else reader.submit(source.read, after)
            yield block, content


# -- several processes ---------------------------------------------------------------------------


def _in_processes(
    work: Work,
    again: Callable[[int], Compute],
    blocks: Sequence[int],
    workers: int,
    keep: Callable[[int, bytes], None],
) -> None:
    """Have worker processes compute the blocks; this process keeps what they send."""
    context = multiprocessing.get_context("spawn")  # threads of libraries do not survive a fork
    told = (again, threads_each(workers), work.source, work.width, work.batch)
    pool = ProcessPoolExecutor(workers, context, _prepare, told)
    waiting = iter(blocks)
    running: dict[Future[bytes], int] = {}
    try:
        # Two blocks per process: one to work on, and one that is there when it is done.
        for block in [block for _, block in zip(range(2 * workers), waiting, strict=False)]:
            running[pool.submit(_work, block)] = block
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                block = running.pop(future)
                keep(block, future.result())
                after = next(waiting, None)
                if after is not None:
                    running[pool.submit(_work, after)] = after
    except BrokenProcessPool:
        raise AdagcError(
            "a worker process was ended from outside (out of memory?): try again with fewer"
            " --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def threads_each(workers: int) -> int:
    """Threads of each worker, so that all of them together have as many as this process may."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (int(told) if told.isdigit() else cores or 1) // workers)


_here: list[Callable[[int], bytes]] = []  # what a worker process does; set when it starts


def _prepare(
    again: Callable[[int], Compute], threads: int, source: Source, width: int, batch: int
) -> None:
    """Set up a worker process: open the model, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
    compute = again(threads)
    _here[:] = [lambda block: compute_block(compute, source.read(block), width, batch).packed()]


def _work(block: int) -> bytes:
    return _here[0](block)

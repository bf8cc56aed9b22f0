"""Predicting all blocks of a source, alone or in several processes, with the same result."""

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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError
from adagc.prediction.journal import Records
from adagc.prediction.models import Model, open_model
from adagc.prediction.sources import Block, Source
from adagc.progress import Meter, meter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What is known of the rows of a block."""

    known: NDArray[np.float32]  # (n,) share of each row that has values
    probabilities: NDArray[np.float32]  # (n, C); NaN where a row has none
    mask: bytes

    def packed(self) -> bytes:
        """As it is kept in a record."""
        return np.column_stack([self.known, self.probabilities]).astype("<f4").tobytes() + self.mask

    @classmethod
    def unpacked(cls, record: bytes, rows: int, classes: int) -> Result:
        """The inverse of `packed`."""
        end = 4 * rows * (classes + 1)
        table = np.frombuffer(record[:end], dtype="<f4").reshape(rows, classes + 1)
        return cls(table[:, 0], table[:, 1:], record[end:])


def sizes(source: Source, classes: int) -> list[int]:
    """Bytes in the record of each block."""
    pairs = zip(source.counts, source.extra, strict=True)
    return [4 * count * (classes + 1) + extra for count, extra in pairs]


def predict_block(model: Model, block: Block, batch: int) -> Result:
    """The probabilities of all rows of a block that have values."""
    found = np.full((len(block.known), len(model.classes)), np.nan, dtype=np.float32)
    rows = np.flatnonzero(block.known > 0)
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        found[some] = model.probabilities(block.gather(some))
    return Result(block.known, found, block.mask)


def perform(
    model: Model,
    source: Source,
    records: Records,
    *,
    batch: int,
    place: Path | None,
    workers: int = 1,
    mine: Sequence[int] | None = None,
) -> None:
    """Predict the blocks that have no record yet, and keep their records.

    Args:
        model: What predicts.
        source: What is predicted.
        records: Where results are kept.
        batch: Rows that are predicted together.
        place: The folder of the model, which worker processes open.
        workers: Number of processes.
        mine: Which blocks to do; None for all.
    """
    wanted = range(len(source.counts)) if mine is None else mine
    left = [block for block in wanted if block not in records]
    total = sum(source.counts[block] for block in wanted)
    done = total - sum(source.counts[block] for block in left)
    with meter("predicting", total, unit=source.unit) as shown:
        rate = _Rate(shown, source.unit, done)

        def keep(block: int, record: bytes) -> None:
            records.write(block, record)
            rate.add(source.counts[block])

        if workers > 1 and len(left) > 1 and place is not None:
            _in_processes(place, source, left, batch, min(workers, len(left)), keep)
        else:
            for block, content in _ahead(source, left):
                keep(block, predict_block(model, content, batch).packed())


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
    place: Path,
    source: Source,
    blocks: Sequence[int],
    batch: int,
    workers: int,
    keep: Callable[[int, bytes], None],
) -> None:
    """Have worker processes predict the blocks; this process keeps what they send."""
    context = multiprocessing.get_context("spawn")  # threads of libraries do not survive a fork
    pool = ProcessPoolExecutor(
        workers, context, _prepare, (place, source, batch, threads_each(workers))
    )
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


def _prepare(place: Path, source: Source, batch: int, threads: int) -> None:
    """Set up a worker process: open the model, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
    model = open_model(place, threads=threads)
    _here[:] = [lambda block: predict_block(model, source.read(block), batch).packed()]


def _work(block: int) -> bytes:
    return _here[0](block)

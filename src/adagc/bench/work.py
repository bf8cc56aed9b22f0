"""Train the run of one job; used by the local engine and inside Slurm jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

from filelock import FileLock, Timeout

from adagc.bench.failures import note_failure
from adagc.bench.jobs import DONE, Job
from adagc.datasets.collection import Collection
from adagc.errors import BusyError
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.records import EpochRecord
from adagc.training.settings import DataSettings
from adagc.types import Losses, Progress

# Deleted when a run is finished: it will not be continued, and they are most of its size.
_CHECKPOINTS = ("last.ckpt", "keep.ckpt")


def perform(
    job: Job,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    on_step: Callable[[Progress, Losses], None] | None = None,
) -> None:
    """Train and test the run of a job; an interrupted run is continued after its last epoch.

    If it fails, the reason is written to a file beside the folder and the error is raised; a later
    call tries again.

    Args:
        job: The job; nothing is done if it is finished.
        on_epoch: Called after every epoch with its line of the history.
        on_step: Called after every optimiser step.

    Raises:
        BusyError: If another process is working on the job.
    """
    with claimed(job), logged(job):
        if job.status == "finished":
            _tidy(job)
            return
        job.failure.unlink(missing_ok=True)  # left by an earlier attempt
        began = time.perf_counter()
        try:
            config = job.config()
            run = train(
                config,
                job.build(),
                job.folder,
                resume=True,
                collection=_collection(DataSettings.of(config)),
                on_epoch=on_epoch,
                on_step=on_step,
                pilots=job.pilots,
            )
            seconds = {"seconds_of_this_process": round(time.perf_counter() - began, 2)}
            run.write_json(DONE, {**job.to_dict(), **seconds})
        except BusyError:  # somebody continues this run with adagc train
            raise
        except Exception as error:
            note_failure(job, error)
            raise
        _tidy(job)


def _tidy(job: Job) -> None:
    """Delete the checkpoints of a finished run; an unfinished one could not be continued then."""
    for name in _CHECKPOINTS:
        job.run.path(name).unlink(missing_ok=True)


@contextmanager
def logged(job: Job) -> Iterator[None]:
    """Write log lines and warnings to a file beside the job's folder, and not to the terminal."""
    handler = logging.FileHandler(f"{job.folder}.log", delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    quiet = logging.getLogger("adagc"), logging.getLogger("py.warnings")
    logging.captureWarnings(True)
    before = [logger.propagate for logger in quiet]
    for logger in quiet:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagates in zip(quiet, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagates
        logging.captureWarnings(False)
        with suppress(OSError):  # the disk is full
            handler.close()


@contextmanager
def claimed(job: Job) -> Iterator[None]:
    """Hold the lock of a job; the system releases it when the process ends, even if killed.

    Raises:
        BusyError: If another process holds it.
    """
    job.lock.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(job.lock, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"another process is working on {job.name}: wait for it to end") from None
    try:
        yield
    finally:
        lock.release()


@lru_cache(maxsize=2)
def _collection(data: DataSettings) -> Collection:
    """The data of a job, kept open for the next job of this process that uses the same data."""
    return open_configured(data)


__all__ = ["BusyError", "claimed", "logged", "perform"]

"""Doing one job: the same code in a process of the local engine and in a job of a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from filelock import FileLock, Timeout

from adagc.bench.failures import note_failure
from adagc.bench.jobs import DONE, Job
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.records import EpochRecord
from adagc.training.settings import DataSettings

# A finished run is never continued; these are most of its size.
_CHECKPOINTS = ("last.ckpt", "keep.ckpt")


class BusyError(AdagcError):
    """Another process works on this job."""


def perform(job: Job, on_epoch: Callable[[EpochRecord], None] | None = None) -> None:
    """Train, test and note it; a run that was interrupted goes on from its last epoch.

    A failure is written beside the folder and raised; whoever plans next tries again.
    """
    with claimed(job), logged(job):
        if job.status == "finished":
            _tidy(job)
            return
        job.failure.unlink(missing_ok=True)  # of an earlier attempt
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
            )
            seconds = {"seconds_of_this_process": round(time.perf_counter() - began, 2)}
            run.write_json(DONE, {**job.to_dict(), **seconds})
        except Exception as error:
            note_failure(job, error)
            raise
        _tidy(job)


def _tidy(job: Job) -> None:
    """Only when the run says that it is finished: without checkpoints it would start anew."""
    for name in _CHECKPOINTS:
        job.run.path(name).unlink(missing_ok=True)


@contextmanager
def logged(job: Job) -> Iterator[None]:
    """Log lines and warnings of a job go to a file beside its folder, not between other jobs'."""
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
        handler.close()


@contextmanager
def claimed(job: Job) -> Iterator[None]:
    """Work on a job that nobody else works on; the claim ends with the process, also by a kill."""
    job.lock.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(job.lock, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{job.name} is being worked on by another process") from None
    try:
        yield
    finally:
        lock.release()


@lru_cache(maxsize=2)
def _collection(data: DataSettings) -> Collection:
    """The data of a job; opened once for all jobs of this process that share it."""
    return open_configured(data)

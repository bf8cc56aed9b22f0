"""Doing one job: the same code in a process of the local engine and in a job of a cluster."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from filelock import FileLock, Timeout

from adagc.atomic import write_json
from adagc.bench.jobs import DONE, Job
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UnsuitedError
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.inputs import OPENED_BY, open_configured
from adagc.training.records import EpochRecord

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
                collection=_collection(config),
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


def note_failure(job: Job, error: BaseException) -> None:
    """Say beside the folder why the job failed; the folder itself stays fit to be continued."""
    job.failure.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        job.failure,
        {
            "error": reason(error),
            "kind": type(error).__name__,
            "traceback": "".join(traceback.format_exception(error)),
        },
    )


def reason(error: BaseException) -> str:
    """An error in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def failure_of(job: Job) -> str:
    """One line why the last attempt failed."""
    return str(_noted(job).get("error", "unknown"))


def is_unsuited(job: Job) -> bool:
    """Whether the method cannot be used on this data, which is nobody's failure."""
    return _noted(job).get("kind") == UnsuitedError.__name__


def _noted(job: Job) -> dict[str, Any]:
    try:
        found = json.loads(job.failure.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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


def _collection(config: RunConfig) -> Collection:
    """The data of a job; opened once for all jobs of this process that share it."""
    blank, names = RunConfig(), RunConfig.__dataclass_fields__.keys()
    others = {name: getattr(blank, name) for name in names - OPENED_BY}
    bands = None if config.bands is None else tuple(config.bands)
    return _opened(replace(config, **others, bands=None), bands)


@lru_cache(maxsize=2)
def _opened(config: RunConfig, bands: tuple[str, ...] | None) -> Collection:
    return open_configured(replace(config, bands=None if bands is None else list(bands)))

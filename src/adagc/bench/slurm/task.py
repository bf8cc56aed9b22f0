"""What a Slurm job does when the cluster starts it: some runs of a benchmark, again if need be."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from adagc import plugins
from adagc.bench.engines import Event, LocalEngine
from adagc.bench.jobs import Job
from adagc.errors import AdagcError

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

log = logging.getLogger(__name__)

_CLAIM = 120  # seconds that a network disk may hold the claim of a node that died


def key_of(job: Job) -> str:
    """Its folder, the same from wherever a command is called."""
    return str(Path(job.folder).resolve())


class SlurmTask:
    """What one Slurm job does: its runs, of which a requeue leaves fewer each time.

    Args:
        jobs: Of `Job.to_dict`.
        workers: How many at the same time.
        cpus: Cores for all of them.
        modules: To be imported first, because they register methods or data sets.
    """

    def __init__(
        self,
        jobs: Sequence[Mapping[str, Any]],
        workers: int,
        cpus: int,
        modules: Sequence[str] = (),
    ) -> None:
        self.jobs, self.workers, self.cpus, self.modules = jobs, workers, cpus, modules

    def __call__(self) -> dict[str, str]:
        """Do what is left; how each run ended, by its folder."""
        from submitit.core.utils import UncompletedJobError

        from adagc.bench.failures import note_failure

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        plugins.import_all(self.modules)
        left = [job for job in self._jobs() if job.status not in ("finished", "failed")]
        if "SLURM_RESTART_COUNT" in os.environ:
            _outlast_claims(left)
        try:
            return self._side_by_side(left) if self.workers > 1 else self._in_turn(left)
        except UncompletedJobError:  # by submitit, when the time is up for the last time
            error = AdagcError(
                "its Slurm job was out of time too often: give more --minutes; the same command"
                " goes on from the last epoch"
            )
            for job in self._jobs():
                if job.status not in ("finished", "failed"):
                    note_failure(job, error)
            raise

    def checkpoint(self) -> DelayedSubmission:
        """Asked for by submitit when the time is up: run folders resume, so the same once more."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _jobs(self) -> list[Job]:
        return [Job(**values) for values in self.jobs]

    def _in_turn(self, jobs: Sequence[Job]) -> dict[str, str]:
        import torch
        from submitit.core.utils import UncompletedJobError

        from adagc.bench.work import BusyError, perform

        torch.set_num_threads(self.cpus)  # not every cluster confines a job to its cores
        ends: dict[str, str] = {}
        for job in jobs:
            try:
                perform(job)
                ends[key_of(job)] = "finished"
            except BusyError:
                ends[key_of(job)] = "busy"
            except UncompletedJobError:
                job.failure.unlink(missing_ok=True)  # the caller knows better words
                raise
            except Exception:
                log.exception(job.name)
                ends[key_of(job)] = "failed"
            log.info(f"{ends[key_of(job)]}: {job.name}")
        return ends

    def _side_by_side(self, jobs: Sequence[Job]) -> dict[str, str]:
        ends: dict[str, str] = {}

        def hear(event: Event) -> None:
            if event.kind in ("finished", "failed", "unsuited", "busy"):
                ends[key_of(event.job)] = event.kind
                log.info(f"{event.kind}: {event.job.name}{event.text and ': '}{event.text}")

        engine = LocalEngine(self.workers)
        if len(engine.cores) > self.cpus:  # of the whole node: neighbours begin elsewhere
            first = int(os.environ.get("SLURM_JOB_ID", "0")) * self.cpus % len(engine.cores)
            engine.cores = (engine.cores * 2)[first : first + self.cpus]
        # Before Slurm requeues a job it says SIGTERM, on some clusters to all its processes, and
        # workers that died of it would count as failed. They inherit what is blocked here; the
        # tracker that comes with the first of them would unblock it, so it comes now.
        ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            engine.run(jobs, hear)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return ends


def _outlast_claims(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.lock.exists():
            with suppress(Timeout), FileLock(job.lock, timeout=_CLAIM):
                pass

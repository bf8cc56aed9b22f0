"""The function that a Slurm job executes: it trains some runs of a benchmark."""

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

_CLAIM = 120  # seconds that a network disk may keep the lock of a node that died


def key_of(job: Job) -> str:
    """The absolute path of its folder, which is the same from every working directory."""
    return str(Path(job.folder).resolve())


class SlurmTask:
    """The runs of one Slurm job; when it is queued again, finished runs are not repeated.

    Args:
        jobs: The jobs, each as `Job.to_dict` returns it.
        workers: Number of runs at the same time.
        cpus: Number of cores for all of them together.
        modules: Plug-ins that are imported first, because they register methods or data sets.
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
        """Do the runs that are left, and return how each of them ended, by its folder."""
        from submitit.core.utils import UncompletedJobError

        from adagc.bench.failures import note_failure

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        plugins.import_all(self.modules)
        left = [job for job in self._jobs() if job.status not in ("finished", "failed")]
        if "SLURM_RESTART_COUNT" in os.environ:
            _wait_for_locks(left)
        try:
            return self._side_by_side(left) if self.workers > 1 else self._in_turn(left)
        except UncompletedJobError:  # from submitit: out of time, and not to be queued again
            error = AdagcError(
                "its Slurm job reached its time limit too often: give more --minutes; the same"
                " command continues after the last epoch"
            )
            for job in self._jobs():
                if job.status not in ("finished", "failed"):
                    note_failure(job, error)
            raise

    def checkpoint(self) -> DelayedSubmission:
        """Called by submitit at the time limit: submit the same task, which resumes its runs."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _jobs(self) -> list[Job]:
        return [Job(**values) for values in self.jobs]

    def _in_turn(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Do the runs one after the other in this process."""
        import torch
        from submitit.core.utils import UncompletedJobError

        from adagc.bench.work import BusyError, perform

        torch.set_num_threads(self.cpus)  # not every cluster limits a job to its cores
        ends: dict[str, str] = {}
        for job in jobs:
            try:
                perform(job)
                ends[key_of(job)] = "finished"
            except BusyError:
                ends[key_of(job)] = "busy"
            except UncompletedJobError:
                job.failure.unlink(missing_ok=True)  # the caller writes a clearer reason
                raise
            except Exception:
                log.exception(job.name)
                ends[key_of(job)] = "failed"
            log.info(f"{ends[key_of(job)]}: {job.name}")
        return ends

    def _side_by_side(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Do several runs at the same time, in worker processes."""
        ends: dict[str, str] = {}

        def hear(event: Event) -> None:
            if event.kind in ("finished", "failed", "unsuited", "busy"):
                ends[key_of(event.job)] = event.kind
                log.info(f"{event.kind}: {event.job.name}{event.text and ': '}{event.text}")

        engine = LocalEngine(self.workers)
        # The cluster does not limit us to our cores: take as many as we asked for, and let other
        # Slurm jobs on this node, whose ids differ, take others.
        if len(engine.cores) > self.cpus:
            first = int(os.environ.get("SLURM_JOB_ID", "0")) * self.cpus % len(engine.cores)
            engine.cores = (engine.cores * 2)[first : first + self.cpus]
        engine.threads = len(engine.cores)  # --cpus says so, whatever OMP_NUM_THREADS says
        # Before Slurm queues a job again it sends SIGTERM, on some clusters to all its processes,
        # and workers that died of it would count as failed. Workers inherit the signals blocked
        # here. Starting Python's resource tracker unblocks SIGTERM, so that is done first.
        ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            engine.run(jobs, hear)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return ends


def _wait_for_locks(jobs: Sequence[Job]) -> None:
    """After a node died, wait until the disk has released the locks that it held."""
    for job in jobs:
        if job.lock.exists():
            with suppress(Timeout), FileLock(job.lock, timeout=_CLAIM):
                pass

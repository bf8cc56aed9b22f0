"""Where jobs are done: on a Slurm cluster, through submitit.

What happened is read from the run folders, as everywhere; Slurm is asked only whether it still has
a job. So no accounting data base is needed, and a second call finds what the first one submitted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from adagc.atomic import write_json
from adagc.bench.engines import Event, Listener, LocalEngine
from adagc.bench.jobs import Job
from adagc.errors import AdagcError, MissingExtraError, UsageError, check_range

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

log = logging.getLogger(__name__)

_OVER = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED"
    " TIMEOUT".split()
)
_ARRAY = 1000  # elements; Slurm's own limit unless a site changed it
_LOOKS = 3  # how often in a row a job must be seen over: one being requeued may look like it


class SlurmEngine:
    """Job arrays on the cluster that this machine submits to.

    A job that reaches its time limit or is preempted is queued again and goes on from its last
    epoch. Whoever waits may be interrupted: the jobs go on, and the same call collects them.

    Args:
        out: Folder of the bench, on a disk that all nodes share; logs go to its `slurm`.
        partition: Where to queue; the cluster's default if not given.
        minutes: Time limit of a job.
        cpus: Cores of a job.
        gpus: GPUs of a job.
        memory: Memory of a job, such as 16GB; the cluster's default if not given.
        runs_per_job: Runs that share a job, one after the other.
        together: Have them share it side by side, for networks too small to fill a GPU.
        parallel: Jobs of an array that run at the same time.
        requeues: How often a job that reaches its time limit is queued again.
        interval: Seconds between two looks at the queue and the run folders.
        extra: Further options of sbatch, such as qos or account (also written slurm_qos); True for
            one without a value; `setup` is a line of shell before the job.
    """

    def __init__(
        self,
        out: Path | str,
        *,
        partition: str | None = None,
        minutes: int = 240,
        cpus: int = 2,
        gpus: int = 0,
        memory: str | None = None,
        runs_per_job: int = 1,
        together: bool = False,
        parallel: int = 64,
        requeues: int = 20,
        interval: float = 10.0,
        extra: Mapping[str, str | bool] | None = None,
    ) -> None:
        least = {"minutes": minutes, "cpus": cpus, "runs_per_job": runs_per_job}
        for name, value in {**least, "parallel": parallel}.items():
            check_range(name, value, 1)
        check_range("gpus", gpus, 0)
        check_range("requeues", requeues, 0)
        self.folder = (Path(out) / "slurm").absolute()
        # Job ids start anew when a cluster is set up anew; with this name they are surely ours.
        self.name = f"adagc-{hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]}"
        self.cpus, self.runs_per_job, self.together = cpus, runs_per_job, together
        self.requeues, self.interval = requeues, interval
        self._parameters = _parameters(
            {"partition": partition, "mem": memory, "gpus_per_node": gpus or None},
            {
                "job_name": self.name,
                "time": minutes,
                "cpus_per_task": cpus,
                "array_parallelism": parallel,
                "signal_delay_s": min(90, 15 * minutes),
                "stderr_to_stdout": True,
                # Since Slurm 22.05 a step does not take over the cores of its job by itself.
                "srun_args": [f"--cpus-per-task={cpus}"],
            },
            extra or {},
        )

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Submit what is neither finished nor in the queue, and wait for all of it."""
        _check_tools()
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "jobs.lock"):  # two calls at once must not submit the same
            ids = self._enqueue(jobs)
        waiting = [_Watched(job, ids.get(_key(job), "")) for job in jobs]
        try:
            while waiting := self._look(waiting, tell):
                time.sleep(self.interval)
        except KeyboardInterrupt:
            log.warning(
                f"{len(waiting)} run(s) go on in Slurm: look with  squeue --me --name={self.name};"
                " the same command collects them"
            )
            raise

    def _enqueue(self, jobs: Sequence[Job]) -> dict[str, str]:
        """The Slurm job of every run that is not finished, submitted if there is none yet."""
        record = self.folder / "jobs.json"
        known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
        todo = {_key(job): job for job in jobs if job.status != "finished"}
        if todo.keys() & known.keys():
            states = self._states()
            if states is None:
                raise AdagcError("squeue does not answer: try again when the cluster does")
            for key in todo.keys() & known.keys():
                # One that failed had its turn, even if its Slurm job has others to do.
                if todo[key].status != "failed" and states.get(known[key], "GONE") not in _OVER | {
                    "GONE"
                }:
                    del todo[key]
        runs = list(todo.values())
        groups = [
            runs[i : i + self.runs_per_job] for i in range(0, len(runs), self.runs_per_job)
        ]
        for i in range(0, len(groups), _ARRAY):
            array = groups[i : i + _ARRAY]
            for group, slurm_id in zip(array, self._submit(array), strict=True):
                known |= {_key(job): slurm_id for job in group}
            write_json(record, known)
        if runs:
            log.info(f"{len(runs)} run(s) submitted in {len(groups)} Slurm job(s) {self.name}")
        return known

    def _submit(self, groups: Sequence[Sequence[Job]]) -> list[str]:
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        workers = self.runs_per_job if self.together else 1
        for group in groups:
            for job in group:
                job.failure.unlink(missing_ok=True)  # from now on it means: in this Slurm job
        executor = SlurmExecutor(self.folder, max_num_timeout=self.requeues)
        executor.update_parameters(**self._parameters)
        tasks = [Task([job.to_dict() for job in group], workers, self.cpus) for group in groups]
        try:
            with _as_from_outside():
                return [job.job_id for job in executor.submit_array(tasks)]
        except (FailedJobError, FailedSubmissionError) as error:
            reason = " ".join(str(error).split()) or "no reason given"
            raise UsageError(f"sbatch refused ({reason}): change the options for Slurm") from None

"""An engine that runs jobs on a Slurm cluster, submitted with submitit.

How far a run is, is read from its folder; Slurm is asked only whether a job is still in its queue.
So no accounting database is needed, and a second call finds what the first one submitted. In this
package a `Job` is one run, and a Slurm job does one or more of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from adagc import plugins
from adagc.atomic import write_json
from adagc.bench.engines import Event, Listener
from adagc.bench.jobs import Job
from adagc.bench.slurm.task import SlurmTask, key_of
from adagc.errors import AdagcError, MissingExtraError, UsageError, check_range

Item = TypeVar("Item")
log = logging.getLogger(__name__)

_GONE = "unknown, it has left the queue"
_ENDS = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT", _GONE,
}  # fmt: skip
_HELD = re.compile("held|hold", re.IGNORECASE)  # waits until somebody releases the job
_ARRAY = 1000  # largest number of Slurm jobs in an array: Slurm's default limit
# How often in a row a Slurm job must be seen in an end state before it counts as ended: a job that
# is about to be queued again may be in one for a moment, and on a network disk files appear late.
_LOOKS = 3


class SlurmEngine:
    """Runs jobs as Slurm job arrays on the cluster that this machine submits to.

    A Slurm job that reaches its time limit or is preempted is queued again, and its runs continue
    after their last epochs. If `run` is interrupted while it waits, the Slurm jobs go on, and the
    next call of `run` waits for them instead of submitting them again.

    Args:
        out: Folder of the bench, on a disk that all nodes share; logs go to its folder `slurm`.
        partition: Partition to submit to; the cluster's default if not given.
        minutes: Time limit of a Slurm job in minutes.
        cpus: Number of CPU cores of a Slurm job.
        gpus: Number of GPUs of a Slurm job.
        memory: Memory of a Slurm job, such as 16GB; the cluster's default if not given.
        runs_per_job: Number of runs that one Slurm job does, one after the other.
        together: Do the runs of a Slurm job at the same time, for networks too small to use a
            whole GPU.
        parallel: Largest number of Slurm jobs of an array that run at the same time.
        requeues: How often a Slurm job that reaches its time limit is queued again.
        interval: Seconds between two checks of the queue and the run folders.
        extra: Further options of sbatch, such as qos or account (also accepted as slurm_qos); True
            for an option without a value. `setup` is a shell command that is run first.
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
        interval: float = 15.0,
        extra: Mapping[str, str | bool] | None = None,
    ) -> None:
        least_one = {"minutes": minutes, "cpus": cpus, "runs_per_job": runs_per_job}
        for name, value in {**least_one, "parallel": parallel}.items():
            check_range(name, value, 1)
        for name, least in {"gpus": gpus, "requeues": requeues, "interval": interval}.items():
            check_range(name, least, 0)
        self.folder = (Path(out) / "slurm").resolve()
        # The numbers of Slurm jobs start again when a cluster is set up again; the name makes sure
        # that a job in the queue is one of ours.
        self.name = f"adagc-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"
        self.cpus, self.runs_per_job, self.together = cpus, runs_per_job, together
        self.requeues, self.interval, self.workers = requeues, interval, parallel
        more = {key.removeprefix("slurm_").replace("-", "_"): v for key, v in (extra or {}).items()}
        setup = more.pop("setup", None)
        self._parameters = {
            "job_name": self.name,
            "partition": partition,
            "time": minutes,
            "cpus_per_task": cpus,
            "gpus_per_node": gpus or None,
            "array_parallelism": parallel,
            "signal_delay_s": min(90, 15 * minutes),
            "stderr_to_stdout": True,
            "setup": None if setup is None else [setup],
            # Since Slurm 22.05 srun does not inherit the number of cores from sbatch.
            "srun_args": [f"--cpus-per-task={cpus}"],
            "additional_parameters": {
                "requeue": True,
                **({} if memory is None else {"mem": memory}),
                **more,
            },
        }

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Submit the jobs that are neither finished nor in the queue, and wait for all jobs."""
        _check_tools()
        self.folder.mkdir(parents=True, exist_ok=True)
        # Two calls at the same time must not submit the same job.
        with FileLock(self.folder / "jobs.lock"):
            ids = self._enqueue(jobs)
        waiting = [_Watched(job, ids.get(key_of(job), ""), job.epochs_done) for job in jobs]
        try:
            while waiting := self._look(waiting, tell):
                time.sleep(self.interval)
        except KeyboardInterrupt:
            log.warning(
                f"{len(waiting)} run(s) continue in Slurm (squeue --me --name={self.name} shows"
                " them); the same command waits for them again"
            )
            raise

    def _enqueue(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Submit the jobs that are not in the queue; the Slurm job id of every run folder."""
        record = self.folder / "jobs.json"
        ids: dict[str, str] = (
            json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
        )
        todo = {key_of(job): job for job in jobs if job.status != "finished"}
        if todo.keys() & ids.keys():
            states = self._states()
            if states is None:
                raise AdagcError(
                    "squeue does not answer: try again when the cluster can be reached"
                )
            # A run that failed is submitted again, even if its Slurm job is still doing other runs.
            todo = {
                key: job
                for key, job in todo.items()
                if job.status == "failed" or states.get(ids.get(key, ""), _GONE) in _ENDS
            }
        groups = list(_chunks(list(todo.values()), self.runs_per_job))
        for array in _chunks(groups, _ARRAY):
            for group, slurm_id in zip(array, self._submit(array), strict=True):
                ids |= {key_of(job): slurm_id for job in group}
            write_json(record, ids)
        if todo:
            log.info(f"{len(todo)} run(s) submitted in {len(groups)} Slurm job(s)")
        return ids

    def _submit(self, groups: Sequence[Sequence[Job]]) -> list[str]:
        """Submit one array with a Slurm job for each group of jobs; the ids of the Slurm jobs."""
        from submitit import JobEnvironment, SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        for job in (job for group in groups for job in group):
            # So that the file, if it appears again, is about this attempt.
            job.failure.unlink(missing_ok=True)
        # submitit handles the signal that announces the time limit only some seconds after the
        # start; before that, the signal would end the job as failed, so the shell ignores it.
        ignore_signal = f'trap \'\' {JobEnvironment.USR_SIG}; exec "$0" "$@"'
        python = shlex.join(["bash", "-c", ignore_signal, sys.executable])
        executor = SlurmExecutor(self.folder, max_num_timeout=self.requeues, python=python)
        executor.update_parameters(**self._parameters)
        workers = self.runs_per_job if self.together else 1
        tasks = [
            SlurmTask([job.to_dict() for job in group], workers, self.cpus, plugins.modules())
            for group in groups
        ]
        try:
            with _as_from_outside():
                return [job.job_id for job in executor.submit_array(tasks)]
        except (FailedJobError, FailedSubmissionError) as error:
            reason = " ".join(str(error).split()) or "no reason given"
            raise UsageError(
                f"sbatch refused the job ({reason}): change the options for Slurm"
            ) from None

    def _states(self) -> dict[str, str] | None:
        """State of each Slurm job of this bench by its id; None if squeue does not answer."""
        command = ["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%r"]
        try:
            answer = subprocess.run(
                [*command, f"--name={self.name}"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        states = {}
        for line in answer.stdout.splitlines():
            slurm_id, state, reason = line.split("|", 2)
            states[slurm_id] = f"{state} ({reason})" if _HELD.search(reason) else state
        return states

    def _look(self, waiting: Sequence[_Watched], tell: Listener) -> list[_Watched]:
        """Report what is new, and return the runs that have not ended."""
        # Asked before the folders are read: a Slurm job that has ended by now writes nothing more.
        states = self._states()
        return [watched for watched in waiting if not self._ended(watched, states, tell)]

    def _ended(self, watched: _Watched, states: Mapping[str, str] | None, tell: Listener) -> bool:
        """Report what is new about one run; True if it has ended."""
        job, status = watched.job, watched.job.status
        state = None if states is None else states.get(watched.slurm_id, _GONE)
        if not watched.started and (status in ("finished", "failed") or state == "RUNNING"):
            watched.started = True
            tell(Event("started", job))
        with suppress(AdagcError):  # the history is being written at this moment
            done = job.epochs_done
            if done > watched.epochs:
                watched.epochs = done
                tell(Event("epoch", job, epoch=done))
        if status == "finished":
            tell(Event("finished", job))
            return True
        if status == "failed":
            from adagc.bench.failures import failure_of, is_unsuited

            tell(Event("unsuited" if is_unsuited(job) else "failed", job, failure_of(job)))
            return True
        if state is None:
            return False
        if _HELD.search(state) and not watched.held:
            watched.held = True
            log.warning(
                f"Slurm holds job {watched.slurm_id} back ({state}): find out why, then run"
                f"  scontrol release {watched.slurm_id}"
            )
        watched.ends = watched.ends + 1 if state in _ENDS else 0
        if watched.ends < _LOOKS:
            return False
        tell(self._verdict(watched, state))
        return True

    def _verdict(self, watched: _Watched, state: str) -> Event:
        """The event of a run that is neither finished nor failed although its Slurm job ended."""
        from submitit import SlurmJob

        from adagc.bench.failures import note_failure

        slurm: SlurmJob[dict[str, str]] = SlurmJob(self.folder, watched.slurm_id)
        if slurm.paths.result_pickle.exists():
            with suppress(Exception):  # `result` raises the error of the job, which is in its log
                if slurm.result().get(key_of(watched.job)) == "busy":
                    return Event("busy", watched.job)
        text = f"Slurm ended job {watched.slurm_id} ({state}) before it was done: see "
        note_failure(watched.job, AdagcError(f"{text}{slurm.paths.stdout}"))
        return Event("failed", watched.job, f"{text}{slurm.paths.stdout}")


@dataclass
class _Watched:
    """A run that `SlurmEngine.run` waits for, and what was already reported about it."""

    job: Job
    slurm_id: str
    epochs: int  # number of epochs reported
    started: bool = False
    held: bool = False
    ends: int = 0  # how often in a row its Slurm job was seen in an end state


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Divide items into sequences of `size`; the last one may be shorter."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _check_tools() -> None:
    """Raise an error if submitit or a command of Slurm is not installed."""
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("submitit, which submits to Slurm,", "slurm") from None
    for tool in ("sbatch", "srun", "squeue"):
        if shutil.which(tool) is None:
            raise AdagcError(
                f"{tool} is not on the PATH: run this on a machine that submits to Slurm, or use"
                " --engine local"
            )


@contextmanager
def _as_from_outside() -> Iterator[None]:
    """Hide the variables of the Slurm job that we run in, which sbatch would take as options."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    from submitit.helpers import clean_env

    where = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    with clean_env():
        os.environ.update(where)  # but keep the one that says which cluster to submit to
        yield

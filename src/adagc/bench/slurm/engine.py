"""Where jobs are done: on a Slurm cluster, through submitit.

What happened to a run is read from its folder, as everywhere; Slurm is asked only whether it still
has a job. So no accounting data base is needed, and a second call finds what the first submitted.
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
_HELD = re.compile("held|hold", re.IGNORECASE)  # until somebody lets the job go
_ARRAY = 1000  # elements; Slurm's own limit unless a site changed it
# How often in a row a job must be seen at its end before we believe it: a job that is about to be
# queued again may look like that, and on a network disk files show up a little later.
_LOOKS = 3


class SlurmEngine:
    """Job arrays on the cluster that this machine submits to.

    A Slurm job that reaches its time limit or is preempted is queued again, and its runs go on from
    their last epochs. Whoever waits may be interrupted: the same call collects what was submitted.

    Args:
        out: Folder of the bench, on a disk that all nodes share; logs go to its `slurm`.
        partition: Where to queue; the cluster's default if not given.
        minutes: Time limit of a Slurm job.
        cpus: Cores of a Slurm job.
        gpus: GPUs of a Slurm job.
        memory: Of a Slurm job, such as 16GB; the cluster's default if not given.
        runs_per_job: Runs that share a Slurm job, one after the other.
        together: Let them share it side by side, for networks too small to fill a GPU.
        parallel: Slurm jobs of an array that run at the same time.
        requeues: How often a Slurm job that reaches its time limit is queued again.
        interval: Seconds between two looks at the queue and the run folders.
        extra: Further options of sbatch, such as qos or account (slurm_qos will do, too); True for
            one without a value. `setup` is a line of shell to run before.
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
        # Ids start anew when a cluster is set up anew; with this name they are surely ours.
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
            # Since Slurm 22.05 a step does not take over the cores of its job by itself.
            "srun_args": [f"--cpus-per-task={cpus}"],
            "additional_parameters": {
                "requeue": True,
                **({} if memory is None else {"mem": memory}),
                **more,
            },
        }

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Submit what is neither finished nor in the queue, and wait for all of it."""
        _check_tools()
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "jobs.lock"):  # two calls at once must not submit the same
            ids = self._enqueue(jobs)
        waiting = [_Watched(job, ids.get(key_of(job), ""), job.epochs_done) for job in jobs]
        try:
            while waiting := self._look(waiting, tell):
                time.sleep(self.interval)
        except KeyboardInterrupt:
            log.warning(
                f"{len(waiting)} run(s) go on in Slurm (squeue --me --name={self.name} shows them);"
                " the same command collects them"
            )
            raise

    def _enqueue(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Slurm jobs by run folder; those that are not there yet are submitted."""
        record = self.folder / "jobs.json"
        ids: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
        todo = {key_of(job): job for job in jobs if job.status != "finished"}
        if todo.keys() & ids.keys():
            states = self._states()
            if states is None:
                raise AdagcError("squeue does not answer: try again when the cluster does")
            # A run that failed had its turn, even if its Slurm job still has others to do.
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
        from submitit import JobEnvironment, SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        for job in (job for group in groups for job in group):
            job.failure.unlink(missing_ok=True)  # from now on it means: in this Slurm job
        # Until submitit listens, which is seconds after the start, the signal that time is up
        # would end the job as failed.
        deaf = f'trap \'\' {JobEnvironment.USR_SIG}; exec "$0" "$@"'
        python = shlex.join(["bash", "-c", deaf, sys.executable])
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
            reason = " ".join(str(error).split()) or "without a reason"
            raise UsageError(f"sbatch refused ({reason}): change the options for Slurm") from None

    def _states(self) -> dict[str, str] | None:
        """What Slurm says of each job of this bench; None if it does not answer."""
        command = ["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%r"]
        try:
            said = subprocess.run(
                [*command, f"--name={self.name}"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        states = {}
        for line in said.stdout.splitlines():
            slurm_id, state, reason = line.split("|", 2)
            states[slurm_id] = f"{state} ({reason})" if _HELD.search(reason) else state
        return states

    def _look(self, waiting: Sequence[_Watched], tell: Listener) -> list[_Watched]:
        """Tell what is new; those that are still to be waited for."""
        states = self._states()  # before the folders: what ended has written all it will write
        return [watched for watched in waiting if not self._ended(watched, states, tell)]

    def _ended(self, watched: _Watched, states: Mapping[str, str] | None, tell: Listener) -> bool:
        job, status = watched.job, watched.job.status
        state = None if states is None else states.get(watched.slurm_id, _GONE)
        if not watched.started and (status in ("finished", "failed") or state == "RUNNING"):
            watched.started = True
            tell(Event("started", job))
        with suppress(AdagcError):  # a history that is just being rewritten
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
                f"Slurm holds back job {watched.slurm_id}, {state}: look into it, then"
                f" scontrol release {watched.slurm_id}"
            )
        watched.ends = watched.ends + 1 if state in _ENDS else 0
        if watched.ends < _LOOKS:
            return False
        tell(self._verdict(watched, state))
        return True

    def _verdict(self, watched: _Watched, state: str) -> Event:
        """Of a run whose Slurm job ended while its folder says neither finished nor failed."""
        from submitit import SlurmJob

        from adagc.bench.failures import note_failure

        slurm: SlurmJob[dict[str, str]] = SlurmJob(self.folder, watched.slurm_id)
        if slurm.paths.result_pickle.exists():
            with suppress(Exception):  # it is the error the job ended with, which the log tells
                if slurm.result().get(key_of(watched.job)) == "busy":
                    return Event("busy", watched.job)
        text = f"Slurm ended job {watched.slurm_id} ({state}) before it was done: see "
        note_failure(watched.job, AdagcError(f"{text}{slurm.paths.stdout}"))
        return Event("failed", watched.job, f"{text}{slurm.paths.stdout}")


@dataclass
class _Watched:
    """A run that somebody waits for."""

    job: Job
    slurm_id: str
    epochs: int  # told of
    started: bool = False
    held: bool = False
    ends: int = 0  # how often in a row its Slurm job was seen at an end


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _check_tools() -> None:
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("submitit, which submits to Slurm,", "slurm") from None
    for tool in ("sbatch", "srun", "squeue"):
        if shutil.which(tool) is None:
            raise AdagcError(
                f"{tool} is not on the PATH: call this where jobs are submitted to Slurm, or use"
                " --engine local"
            )


@contextmanager
def _as_from_outside() -> Iterator[None]:
    """Submitting from inside a Slurm job must not pass on that job's own numbers."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    from submitit.helpers import clean_env

    where = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    with clean_env():
        os.environ.update(where)  # which cluster it is, that stays
        yield

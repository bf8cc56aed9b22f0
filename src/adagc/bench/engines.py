"""An engine trains the runs of jobs; `LocalEngine` does so in several processes of this machine.

The engine for clusters is `adagc.bench.slurm.engine.SlurmEngine`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Literal, Protocol

from adagc import plugins, progress
from adagc.bench.jobs import Job
from adagc.errors import AdagcError, UnsuitedError, UsageError

if TYPE_CHECKING:
    from adagc.training.records import EpochRecord
    from adagc.types import Losses, Progress

# Files of the drivers that torch computes with: Nvidia's (also under Windows) and AMD's.
_GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Event:
    """Something that happened to a job and is reported while an engine runs."""

    kind: Literal["started", "moved", "epoch", "finished", "failed", "unsuited", "busy"]
    job: Job
    # failed: the reason; unsuited: what the method needs and the data lacks; epoch: its scores;
    # moved: what is done besides training
    text: str = ""
    epoch: int = 0  # number of finished epochs
    within: float = 0.0  # moved: share of the next epoch that is done


Listener = Callable[[Event], None]
_BETWEEN = 0.5  # seconds from one event within an epoch to the next


class Engine(Protocol):
    """Runs jobs and reports events; a job that fails does not stop the others."""

    workers: int  # largest number of jobs that run at the same time

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Run all jobs and call `tell` with every event; return when the last one has ended."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a worker process computes."""

    threads: int  # number of threads of torch
    cores: tuple[int, ...] = ()  # the CPU cores that it is limited to; empty for no limit
    gpu: str | None = None  # as CUDA_VISIBLE_DEVICES names it; None for all that there are


class LocalEngine:
    """Runs jobs in worker processes on this machine, each on its own CPU cores.

    A worker runs one job after the other, so that Python is started and data is opened only once.
    A worker that dies (killed, out of memory) is replaced, and its job counts as failed.

    All workers together have as many threads as this process may use cores, or as OMP_NUM_THREADS
    says if that is fewer; every worker has at least one.

    Args:
        workers: Number of processes. None: one per GPU, or one per thread if there are no GPUs,
            because networks that are small enough for a CPU gain more from several runs at the
            same time than from several threads per run.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"--workers must be at least 1, not {workers}")
        self.gpus = _gpus()
        self.cores = _cores()
        self.threads = min(len(self.cores), _asked_threads() or len(self.cores))
        self.workers = workers or len(self.gpus) or self.threads

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Run all jobs and call `tell` with every event; return when the last one has ended."""
        waiting = deque(jobs)
        workers = [_Worker(i, self) for i in range(min(self.workers, len(jobs)))]
        try:
            for worker in workers:
                worker.give(waiting.popleft(), tell)
            while busy := [worker for worker in workers if worker.job is not None]:
                for ready in wait([worker.pipe for worker in busy]):
                    worker = next(worker for worker in busy if worker.pipe is ready)
                    if worker.hear(tell) and waiting:
                        worker.give(waiting.popleft(), tell)
        finally:
            for worker in workers:
                worker.stop()

    def place(self, number: int) -> Place:
        """Where a worker computes; workers share cores only if there are too few."""
        threads = max(1, self.threads // self.workers)
        cores: tuple[int, ...] = ()
        # Where fewer threads than cores are wanted, other programs use the rest: the system decides
        # which cores are free, because two benches would choose the same ones.
        if self.threads >= len(self.cores):
            first = number * threads % len(self.cores)
            cores = tuple((self.cores * 2)[first : first + threads])
        return Place(threads, cores, self.gpus[number % len(self.gpus)] if self.gpus else None)


class _Worker:
    """One worker process and the job it is working on."""

    def __init__(self, number: int, engine: LocalEngine) -> None:
        self._number, self._engine = number, engine
        self.job: Job | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.pipe, other_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve,
            args=(other_end, self._engine.place(self._number), plugins.modules()),
            daemon=True,
        )
        self._process.start()
        other_end.close()

    def give(self, job: Job, tell: Listener) -> None:
        """Send a job to the process, which must not have one."""
        self.job = job
        try:
            self.pipe.send(job.to_dict())
        except OSError:
            return  # the process is dead already; `hear` notices it and reports the failure
        tell(Event("started", job))

    def hear(self, tell: Listener) -> bool:
        """Read one message of the process and report it; True if it is free for the next job."""
        assert self.job is not None
        job = self.job
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            from adagc.bench.failures import note_failure

            text = _death_reason(self._process.exitcode)
            note_failure(job, AdagcError(text))
            self.job = None
            self.pipe.close()
            self._start()
            tell(Event("failed", job, text))
            return True
        if kind in ("epoch", "moved"):
            tell(Event(kind, job, **value))
            return False
        self.job = None
        tell(Event(kind, job, text=value or ""))
        return True

    def stop(self) -> None:
        """End the process, also in the middle of a job, whose run can be continued later."""
        self.pipe.close()
        # A process without a job ends by itself when its pipe is closed.
        if self.job is None:
            self._process.join(timeout=5)
        # SIGKILL, because workers inside a Slurm job block SIGTERM (see SlurmTask).
        self._process.kill()
        self._process.join()


def _death_reason(code: int | None) -> str:
    """One line that says how a worker process ended unexpectedly, from its exit code."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        more = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the process that trained it was ended by {name}{more}"
    return f"the process that trained it ended with code {code}"


def settle(place: Place, modules: Sequence[str]) -> None:
    """Set up a worker process: limit it to its place, import the parent's plug-ins."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    if place.cores and hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, place.cores)
    if place.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = place.gpu  # read when CUDA is first used
    import torch

    torch.set_num_threads(place.threads)
    logging.getLogger("adagc").setLevel(logging.INFO)
    logging.raiseExceptions = False  # a log line that cannot be written is no reason to complain
    plugins.import_all(modules)


def _serve(pipe: Connection, place: Place, modules: Sequence[str]) -> None:
    """Main function of a worker process: run the jobs that arrive until the pipe is closed."""
    settle(place, modules)
    from adagc.bench.failures import reason
    from adagc.bench.work import BusyError, perform

    def say(kind: str, value: Any = None) -> None:
        try:
            pipe.send((kind, value))
        except OSError:
            # The parent process is gone. The run has not failed: it can be continued later.
            raise SystemExit(1) from None

    while True:
        try:
            job = Job(**pipe.recv())
        except EOFError:
            return
        reporter = Reporter(say)
        try:
            with progress.sent_to(reporter.other):
                perform(job, reporter.epoch, reporter.step)
        except BusyError:
            say("busy")
        except UnsuitedError as error:
            say("unsuited", reason(error))
        except Exception as error:
            say("failed", reason(error))
        else:
            say("finished")


class Reporter:
    """Says how far a job is, while it is trained.

    Args:
        say: Function that gets the kind of an `Event` and its values besides the job.
    """

    def __init__(self, say: Callable[[Any, Any], None]) -> None:
        self._say = say
        self._at: dict[str, Any] = {"epoch": 0}
        self._last = 0.0

    def epoch(self, line: EpochRecord) -> None:
        """After an epoch."""
        self._at = {"epoch": line.epoch}
        self._say("epoch", {**self._at, "text": line.in_words})

    def step(self, where: Progress, losses: Losses) -> None:
        """After an optimiser step."""
        within = (where.step % where.steps_per_epoch + 1) / where.steps_per_epoch
        self._at = {"epoch": where.epoch - 1, "within": within}
        self._move("")

    def other(self, shown: progress.Meter) -> None:
        """In the course of other work, such as decoding images."""
        self._move(f"{shown.what} {100 * shown.share:.0f} %")

    def _move(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _BETWEEN:
            self._last = now
            self._say("moved", {**self._at, "text": text})


def _asked_threads() -> int | None:
    """Number of threads that OMP_NUM_THREADS allows; None if it does not say."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _cores() -> list[int]:
    """Numbers of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _gpus() -> list[str]:
    """The GPUs that this process may use, each as CUDA_VISIBLE_DEVICES names it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name and name != "-1"]
    if sys.platform == "linux" and not any(map(os.path.exists, _GPU_DRIVERS)):
        return []  # known without torch, whose import takes seconds
    import torch

    return [str(i) for i in range(torch.cuda.device_count())]

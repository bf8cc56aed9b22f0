"""Where jobs are done: on this machine in several processes, or on a cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol

from adagc import plugins
from adagc.bench.jobs import Job
from adagc.errors import AdagcError, UnsuitedError, UsageError


@dataclass(frozen=True)
class Event:
    """What happened to a job."""

    kind: Literal["started", "epoch", "finished", "failed", "unsuited", "busy"]
    job: Job
    text: str = ""  # why it failed, or what the method lacks
    epoch: int = 0  # finished epochs


Listener = Callable[[Event], None]


class Engine(Protocol):
    """Does jobs and tells; a job that fails does not stop the others."""

    workers: int  # jobs at the same time, at most

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Do all of them."""
        ...


class LocalEngine:
    """Worker processes on this machine, each with cores of its own.

    A worker does one job after the other, so that starting Python and opening the data is paid
    once. One that dies (killed, out of memory) is replaced, and its job counts as failed.

    Args:
        workers: How many; None for one per GPU, or without GPUs one per core: networks as small as
            a CPU can train gain more from company than from threads.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.gpus = _gpus()
        self.cores = _cores()
        self.workers = workers or len(self.gpus) or len(self.cores)
        if workers is not None and workers < 1:
            raise UsageError(f"--workers must be at least 1, not {workers}")

    def run(self, jobs: Sequence[Job], tell: Listener) -> None:
        """Do all of them."""
        waiting = deque(jobs)
        crew = [_Worker(i, self) for i in range(min(self.workers, len(jobs)))]
        try:
            for worker in crew:
                worker.give(waiting.popleft(), tell)
            while busy := [worker for worker in crew if worker.job is not None]:
                for ready in wait([worker.pipe for worker in busy]):
                    worker = next(worker for worker in busy if worker.pipe is ready)
                    if worker.hear(tell) and waiting:
                        worker.give(waiting.popleft(), tell)
        finally:
            for worker in crew:
                worker.stop()

    def share(self, number: int) -> tuple[list[int], str | None]:
        """The cores and the GPU of a worker: whole cores as long as there are enough."""
        count = max(1, len(self.cores) // self.workers)
        first = number * count % len(self.cores)
        cores = (self.cores * 2)[first : first + count]
        return cores, self.gpus[number % len(self.gpus)] if self.gpus else None


class _Worker:
    """One process and the job it is at."""

    def __init__(self, number: int, engine: LocalEngine) -> None:
        self._number, self._engine = number, engine
        self.job: Job | None = None
        self._hire()

    def _hire(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.pipe, theirs = context.Pipe()
        cores, gpu = self._engine.share(self._number)
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, cores, gpu, plugins.modules()), daemon=True
        )
        self._process.start()
        theirs.close()

    def give(self, job: Job, tell: Listener) -> None:
        self.job = job
        try:
            self.pipe.send(job.to_dict())
        except OSError:
            return  # it is dead already, which `hear` will find out
        tell(Event("started", job))

    def hear(self, tell: Listener) -> bool:
        """Pass on what the process says; True when it is free for the next job."""
        assert self.job is not None
        job = self.job
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            from adagc.bench.failures import note_failure

            text = _obituary(self._process.exitcode)
            note_failure(job, AdagcError(text))
            self.job = None
            self.pipe.close()
            self._hire()
            tell(Event("failed", job, text))
            return True
        if kind == "epoch":
            tell(Event("epoch", job, epoch=value))
            return False
        self.job = None
        tell(Event(kind, job, text=value or ""))
        return True

    def stop(self) -> None:
        self.pipe.close()
        # Between two jobs it leaves by itself; in the middle of one the run can be continued.
        if self.job is None:
            self._process.join(timeout=5)
        # Not by SIGTERM, which a job of a cluster shields its workers from.
        self._process.kill()
        self._process.join()


def _obituary(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        more = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the process that trained it was ended by {name}{more}"
    return f"the process that trained it ended with code {code}"


def settle(cores: list[int], gpu: str | None, modules: Sequence[str]) -> None:
    """Keep this process to its share of the machine, and let it know the parent's plug-ins."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, cores)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # read when CUDA is first used
    import torch

    torch.set_num_threads(len(cores))
    logging.getLogger("adagc").setLevel(logging.INFO)
    plugins.import_all(modules)


def _serve(pipe: Connection, cores: list[int], gpu: str | None, modules: Sequence[str]) -> None:
    """The life of a worker process."""
    settle(cores, gpu, modules)
    from adagc.bench.failures import reason
    from adagc.bench.work import BusyError, perform

    def say(kind: str, value: Any = None) -> None:
        try:
            pipe.send((kind, value))
        except OSError:
            # Whoever gave the job is gone. That is no failure of the run, which can be continued.
            raise SystemExit(1) from None

    while True:
        try:
            job = Job(**pipe.recv())
        except EOFError:
            return
        try:
            perform(job, lambda line: say("epoch", line.epoch))
        except BusyError:
            say("busy")
        except UnsuitedError as error:
            say("unsuited", reason(error))
        except Exception as error:
            say("failed", reason(error))
        else:
            say("finished")


def _cores() -> list[int]:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES would be set to, one entry per GPU."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [name for name in told.split(",") if name and name != "-1"]
    import torch

    return [str(i) for i in range(torch.cuda.device_count())]

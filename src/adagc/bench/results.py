"""What run folders say, method by method: the only thing that tables and figures are made of."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adagc.bench.failures import failure_of, is_unsuited, reason
from adagc.bench.jobs import Job, Status
from adagc.errors import AdagcError
from adagc.training.records import Choice, NewerFormatError, TestedNetwork
from adagc.training.runs import Run
from adagc.types import Scores


@dataclass(frozen=True)
class Result:
    """One finished run."""

    label: str
    method: str
    seed: int
    run: Run
    seconds: float  # of training, over all attempts
    networks: Mapping[str, TestedNetwork]  # by name; empty without clean labels to test with

    def scores(self, network: str, choice: Choice) -> Scores | None:
        """Of a network of this run at this epoch, if it has one of that name."""
        found = self.networks.get(network)
        at = None if found is None else found.epochs.get(choice)
        return None if at is None else at.scores

    def predictions(self, network: str, choice: Choice) -> NDArray[np.float32]:
        """(N, C) probabilities for the test images."""
        from adagc.training.scoring import predictions_of

        return predictions_of(self.run)[f"{network}-{choice}"]

    def truth(self) -> NDArray[np.bool_]:
        """(N, C) clean labels of the test images."""
        from adagc.training.scoring import truth_of

        return truth_of(self.run)


@dataclass(frozen=True)
class Results:
    """All that a scenario's folders hold, finished or not."""

    scenario: str
    jobs: tuple[Job, ...]
    finished: tuple[Result, ...]
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # label -> reasons
    unsuited: Mapping[str, Sequence[str]] = field(default_factory=dict)  # label -> what it lacks
    statuses: Mapping[str, Status] = field(default_factory=dict)  # folder -> status

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Rows of the table, in the order in which they were planned."""
        return tuple(dict.fromkeys(job.label for job in self.jobs))

    def of(self, label: str) -> list[Result]:
        """The finished runs of a row, by seed."""
        return sorted((r for r in self.finished if r.label == label), key=lambda r: r.seed)

    def method(self, label: str) -> str:
        """The title of the method behind a row."""
        return next(job.method for job in self.jobs if job.label == label)

    def seconds(self, label: str) -> float | None:
        """Mean training time of a row."""
        times = [result.seconds for result in self.of(label)]
        return statistics.mean(times) if times else None

    def count(self, label: str) -> int:
        """How many runs a row was planned to have."""
        return sum(job.label == label for job in self.jobs)


def collect(scenario: str, jobs: Iterable[Job]) -> Results:
    """Read the folders of these jobs."""
    jobs = tuple(jobs)
    finished: list[Result] = []
    failed: dict[str, list[str]] = {}
    unsuited: dict[str, list[str]] = {}
    statuses: dict[str, Status] = {}
    for job in jobs:
        statuses[job.folder] = status = job.status
        if status == "finished":
            try:
                finished.append(read(job))
            except NewerFormatError as error:
                statuses[job.folder] = "failed"
                failed.setdefault(job.label, []).append(f"seed {job.seed}: {error}")
            except AdagcError as error:
                statuses[job.folder] = "failed"
                failed.setdefault(job.label, []).append(
                    f"seed {job.seed}: {job.folder} is damaged ({reason(error)}): delete it to do"
                    " the run again"
                )
        elif status == "failed" and is_unsuited(job):
            unsuited.setdefault(job.label, []).append(failure_of(job))
        elif status == "failed":
            failed.setdefault(job.label, []).append(f"seed {job.seed}: {failure_of(job)}")
    _check_decided(jobs, finished)
    return Results(scenario, jobs, tuple(finished), failed, unsuited, statuses)


def _check_decided(jobs: Sequence[Job], finished: Sequence[Result]) -> None:
    """What "auto" came to is not in a folder's name, and packages come and go between two calls."""
    decided = ("backbone", "weights", "size")
    free = [key for key in decided if all(job.settings.get(key) in ("auto", None) for job in jobs)]
    for other in finished[1:]:
        for key in free:
            one, two = (result.run.settings[key] for result in (finished[0], other))
            if one != two:
                raise AdagcError(
                    f"{finished[0].run.folder} was trained with {key} {one}, {other.run.folder}"
                    f" with {two}: say which in scenario.yaml, or delete the runs to be done again"
                )


def read(job: Job) -> Result:
    """A finished job."""
    run = Run.open(job.folder)
    if not run.settings["epochs"]:
        raise AdagcError("config.yaml does not say how many epochs")
    tested = run.scores
    return Result(
        label=job.label,
        method=job.method,
        seed=job.seed,
        run=run,
        seconds=run.made.training_seconds,
        networks={} if tested is None else tested.networks,
    )


__all__ = ["Choice", "Result", "Results", "collect", "read"]

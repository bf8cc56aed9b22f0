"""The results of many runs, read from their folders; all tables and figures are made from them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adagc.bench.failures import failure_of, is_unsuited, reason
from adagc.bench.jobs import Job, Status
from adagc.errors import AdagcError
from adagc.methods import outline
from adagc.methods.told import Knowledge
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
    seconds: float  # time spent on training, all attempts together
    networks: Mapping[str, TestedNetwork]  # by name; empty without clean labels to test with
    remark: str = ""  # what the method says a reader of the scores must know
    caveat: str = ""  # in what way its test scores are not like those of other data
    cpu_seconds: float | None = None  # CPU time of the training; None if it was not measured

    @property
    def packed(self) -> bool:
        """Whether it was read from a pack and not from a folder."""
        return self.run.files.place is None

    @property
    def name(self) -> str:
        """The folder of the run or, in a pack, the row and the seed."""
        return f"{self.label}, seed {self.seed}," if self.packed else str(self.run.folder)

    @property
    def remedy(self) -> str:
        """What makes its predictions anew."""
        return "pack the results again" if self.packed else f"run  adagc evaluate {self.run.folder}"

    def scores(self, network: str, choice: Choice) -> Scores | None:
        """Test scores of one of the run's networks; None if it has no such network or epoch."""
        tested = self.networks.get(network)
        at = None if tested is None else tested.epochs.get(choice)
        return None if at is None else at.scores

    def predictions(self, network: str, choice: Choice) -> NDArray[np.float32]:
        """(N, C) probabilities that one of the run's networks predicts for the test images."""
        from adagc.training.scoring import predictions_of

        self._require_predictions()
        saved = predictions_of(self.run)
        name = f"{network}-{choice}"
        if name not in saved:
            raise AdagcError(f"predictions of {name} are not kept here, only {', '.join(saved)}")
        return saved[name]

    def truth(self) -> NDArray[np.bool_]:
        """(N, C) clean labels of the test images."""
        from adagc.training.scoring import truth_of

        self._require_predictions()
        return truth_of(self.run)

    def _require_predictions(self) -> None:
        if self.packed and not self.run.exists("predictions.safetensors"):
            raise AdagcError("this pack has no predictions of test images, which intervals need")


@dataclass(frozen=True)
class Results:
    """The results of all runs of a scenario, those that failed or are missing included."""

    scenario: str
    jobs: tuple[Job, ...]
    finished: tuple[Result, ...]
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # label -> reasons
    unsuited: Mapping[str, Sequence[str]] = field(default_factory=dict)  # label -> what is missing
    statuses: Mapping[str, Status] = field(default_factory=dict)  # folder -> status

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Rows of the table, in the order in which they were planned."""
        return tuple(dict.fromkeys(job.label for job in self.jobs))

    def of(self, label: str) -> list[Result]:
        """The finished runs of a row, by seed."""
        return sorted((r for r in self.finished if r.label == label), key=lambda r: r.seed)

    def remarks(self) -> list[str]:
        """What methods say a reader of their scores must know: "GR, 2 of 3 runs: ..."."""
        found = []
        for label in self.labels:
            runs = self.of(label)
            for remark, count in Counter(run.remark for run in runs if run.remark).items():
                found.append(f"{label}, {count} of {len(runs)} runs: {remark}.")
        return found

    def method(self, label: str) -> str:
        """The title of the method behind a row."""
        return next(job.method for job in self.jobs if job.label == label)

    def told(self, label: str) -> tuple[str, ...]:
        """The options through which the runs of a row are told how frequent labels are."""
        return tuple(dict.fromkeys(n for job in self.jobs if job.label == label for n in job.told))

    def knows(self, label: str) -> Knowledge:
        """What the runs of a row know of how frequent labels are."""
        found = {job.informed for job in self.jobs if job.label == label}
        return "told" if "told" in found else "estimated" if "estimated" in found else "none"

    def given(self, label: str) -> frozenset[str]:
        """What the runs of a row are given besides observed labels, such as truth or priors.

        That is what the method needs, and priors if something tells it how frequent labels are. An
        estimate is called "estimate": it is made from observed labels.
        """
        needs = outline(self.method(label)).needs - {"priors"}
        also = {"told": {"priors"}, "estimated": {"estimate"}, "none": set[str]()}
        return needs | also[self.knows(label)]

    @cached_property
    def clock(self) -> Literal["CPU time", "time"]:
        """What rows cost: CPU time, or time on the clock if it is not known of all runs.

        CPU time is not measured on GPUs, nor in runs of older versions.
        """
        known = [result.cpu_seconds is not None for result in self.finished]
        return "CPU time" if known and all(known) else "time"

    def cost(self, label: str) -> float | None:
        """Mean training time of a row's finished runs in seconds of `clock`; None without any."""
        times = [
            result.cpu_seconds or 0.0 if self.clock == "CPU time" else result.seconds
            for result in self.of(label)
        ]
        return statistics.mean(times) if times else None

    def count(self, label: str) -> int:
        """How many runs a row was planned to have."""
        return sum(job.label == label for job in self.jobs)

    def absence(self, label: str) -> str:
        """Why a row has no finished run, in a few words."""
        if label in self.failed:
            return f"failed: {self.failed[label][0]}"
        if label in self.unsuited:
            return f"left out: {self.unsuited[label][0].removeprefix(f'{self.method(label)} ')}"
        folders = [job.folder for job in self.jobs if job.label == label]
        begun = any(self.statuses.get(folder) == "started" for folder in folders)
        return "not finished" if begun else "not run"


def collect(scenario: str, jobs: Iterable[Job], *, tested: bool = True) -> Results:
    """Read the folders of these jobs; a damaged folder counts as a failed run.

    Args:
        scenario: Name of the scenario.
        jobs: Its jobs, finished or not.
        tested: Read the scores on clean test labels, too; without them results know nothing that
            was not made from observed labels alone.
    """
    jobs = tuple(jobs)
    finished: list[Result] = []
    failed: dict[str, list[str]] = {}
    unsuited: dict[str, list[str]] = {}
    statuses: dict[str, Status] = {}
    for job in jobs:
        statuses[job.folder] = status = job.status
        if status == "finished":
            try:
                finished.append(read(job, tested=tested))
            except NewerFormatError as error:
                statuses[job.folder] = "failed"
                failed.setdefault(job.label, []).append(f"seed {job.seed}: {error}")
            except AdagcError as error:
                statuses[job.folder] = "failed"
                failed.setdefault(job.label, []).append(
                    f"seed {job.seed}: {job.folder} is damaged ({reason(error)}): delete it to"
                    " train the run again"
                )
        elif status == "failed" and is_unsuited(job):
            unsuited.setdefault(job.label, []).append(failure_of(job))
        elif status == "failed":
            failed.setdefault(job.label, []).append(f"seed {job.seed}: {failure_of(job)}")
    _check_decided(jobs, finished)
    return Results(scenario, jobs, tuple(finished), failed, unsuited, statuses)


def _check_decided(jobs: Sequence[Job], finished: Sequence[Result]) -> None:
    """Raise AdagcError if "auto" was resolved differently in two runs.

    The name of a folder contains "auto", not what it was resolved to, and that can change when
    packages are installed or removed between two calls.
    """
    decided = ("backbone", "weights", "size")
    auto = [key for key in decided if all(job.settings.get(key) in ("auto", None) for job in jobs)]
    for other in finished[1:]:
        for key in auto:
            one, two = (result.run.settings[key] for result in (finished[0], other))
            if one != two:
                raise AdagcError(
                    f"{finished[0].run.folder} was trained with {key} {one}, {other.run.folder}"
                    f" with {two}: set {key} in scenario.yaml, or delete the runs with the other"
                    " value"
                )


def read(job: Job, run: Run | None = None, *, tested: bool = True) -> Result:
    """Read the result of a finished job from its folder, or from its run if that is elsewhere.

    The scores on clean test labels are left unread if not `tested`.
    """
    run = run or Run.open(job.folder)
    if not run.settings["epochs"]:
        raise AdagcError("config.yaml does not say the number of epochs")
    scores, made = run.scores if tested else None, run.made
    return Result(
        label=job.label,
        method=job.method,
        seed=job.seed,
        run=run,
        seconds=made.training_seconds,
        networks={} if scores is None else scores.networks,
        remark=made.remark,
        caveat="" if scores is None else scores.remark,
        cpu_seconds=made.cpu_seconds,
    )


__all__ = ["Choice", "Result", "Results", "collect", "read"]

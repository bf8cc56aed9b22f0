"""Which values of the options a search tries, and which trial it chooses.

Everything in this file uses scores on noisy validation labels only, never on clean labels.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from adagc.bench.failures import failure_of
from adagc.bench.jobs import Job
from adagc.bench.results import Choice
from adagc.errors import UsageError, check_range
from adagc.metrics import CRITERIA, CriterionName

if TYPE_CHECKING:
    from adagc.methods import Method

Sampler = Literal["grid", "tpe"]
State = Literal["finished", "pruned", "failed", "started", "missing"]
PRUNED = "pruned.json"  # file in the folder of a run that was stopped early for its low scores
_DECADE = 10  # ratio of largest to smallest value from which on a range is logarithmic
_DIGITS = 4  # significant digits of a drawn value, so that names and files show it exactly
_SLICES = 4  # number of parts of a range whose best scores are compared


@dataclass(frozen=True)
class Dimension:
    """One tuned option: the values of its grid and, if they are numbers, the range they span."""

    values: tuple[Any, ...]  # in the order of the grid
    bounds: tuple[float, float] | None = None  # None: only the listed values can be tried
    log: bool = False  # whether the range is logarithmic

    @property
    def whole(self) -> bool:
        """Whether the range contains integers only."""
        return self.bounds is not None and isinstance(self.bounds[0], int)

    def contains(self, value: Any) -> bool:
        """Whether a sampler that draws from the range could draw this value."""
        if self.bounds is None:
            return value in self.values
        if not _is_number(value) or (self.whole and not float(value).is_integer()):
            return False
        return bool(self.bounds[0] <= value <= self.bounds[1])

    def fit(self, value: Any) -> Any:
        """The value rounded to four significant digits, or to an integer in a range of integers.

        The result stays within the bounds. Values of options without a range are returned as is.
        """
        if self.bounds is None:
            return value
        if self.whole:
            return int(value)  # so that a default of 3.0 and a drawn 3 are the same trial
        low, high = self.bounds
        return min(max(float(f"{value:.{_DIGITS}g}"), low), high)

    def slice(self, value: Any) -> int:
        """The quarter of the range that contains the value, from 0 to 3."""
        assert self.bounds is not None
        low, high, here = (
            math.log(number) if self.log else number for number in (*self.bounds, value)
        )
        return min(int(_SLICES * (here - low) / (high - low)), _SLICES - 1)


def space(method: type[Method]) -> dict[str, Dimension]:
    """The options of a method that can be tuned, from its `grid`; UsageError if there are none."""
    if not method.grid:
        raise UsageError(
            f"{method.title} has nothing to tune: none of its options has values worth trying"
            f" (adagc methods {method.title})"
        )
    unlimited = (-math.inf, math.inf)
    return {
        name: _dimension(values, method.ranges.get(name, unlimited))
        for name, values in method.grid.items()
    }


def _dimension(values: tuple[Any, ...], allowed: tuple[float, float]) -> Dimension:
    if not all(_is_number(value) for value in values):
        return Dimension(values)
    smallest, largest = min(values), max(values)
    low, high = max(smallest, allowed[0]), min(largest, allowed[1])
    if all(isinstance(value, int) for value in values):
        low, high = math.ceil(low), math.floor(high)
    else:
        low, high = float(low), float(high)
    if low >= high:
        return Dimension(values)
    return Dimension(values, (low, high), log=smallest > 0 and largest / smallest >= _DECADE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def grid(dimensions: Mapping[str, Dimension], trials: int | None = None) -> list[dict[str, Any]]:
    """All combinations of values; the last option changes fastest.

    If there are more combinations than trials, a random subset is returned. A larger number of
    trials gives a subset that contains the smaller one, so finished trials can be used again.
    """
    check_range("trials", trials, 1)
    values = [dimension.values for dimension in dimensions.values()]
    points = [dict(zip(dimensions, point, strict=True)) for point in itertools.product(*values)]
    if trials is None or trials >= len(points):
        return points
    drawn = np.random.default_rng(0).permutation(len(points))[:trials]
    return [points[i] for i in sorted(drawn.tolist())]


@dataclass(frozen=True)
class Trial:
    """A trial as far as the choice may know it: without any score on clean labels."""

    options: Mapping[str, Any]  # values of the tuned options
    state: State
    noisy: Mapping[int, float]  # seed -> criterion on noisy validation labels, of finished runs
    seconds: float  # training time of all seeds
    epochs: int  # number of epochs trained, over all seeds
    reason: str = ""  # why it failed; empty if it did not
    remark: str = ""  # what the method says a reader of the scores must know

    @property
    def score(self) -> float | None:
        """The mean of the criterion over seeds; None unless the runs of all are finished."""
        return statistics.mean(self.noisy.values()) if self.state == "finished" else None

    @property
    def name(self) -> str:
        """The options in one line, for example "weight=3 momentum=0.9"."""
        return name_of(self.options)


def state_of(jobs: Sequence[Job]) -> State:
    """The state of a trial, from the run folders of its jobs (one per seed)."""
    states = {job.status for job in jobs}
    if states == {"finished"}:
        return "finished"
    if any(job.run.path(PRUNED).exists() for job in jobs):
        return "pruned"
    if "failed" in states:
        return "failed"
    return "missing" if states == {"missing"} else "started"


def read(
    options: Mapping[str, Any], jobs: Sequence[Job], by: Choice, select: CriterionName
) -> Trial:
    """Read a trial from the run folders of its jobs.

    Args:
        options: The values of the tuned options.
        jobs: The runs of the trial, one per seed.
        by: Whether the last or the best epoch of a run is its score.
        select: The criterion, of the deployed network: the only number that a search compares.
    """
    state, noisy, seconds, epochs, reason, remark = state_of(jobs), {}, 0.0, 0, "", ""
    for job in jobs:
        lines = job.run.history
        seconds += sum(line.seconds for line in lines)
        epochs += len(lines)
        remark = remark or (lines[-1].remark if lines else "")
        if job.status == "finished":
            values = [line.criterion(select) for line in lines]
            noisy[job.seed] = values[-1] if by == "last" else max(values)
        elif job.status == "failed" and state == "failed":  # not if it was pruned later
            reason = reason or failure_of(job)
    return Trial(dict(options), state, noisy, seconds, epochs, reason, remark)


def name_of(options: Mapping[str, Any]) -> str:
    """Options in one line, for example "weight=3 momentum=0.9"."""
    return " ".join(f"{key}={short(value)}" for key, value in options.items())


def short(value: Any) -> str:
    """The value of an option as people write it: 3 for 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def choose(trials: Iterable[Trial]) -> Trial | None:
    """The finished trial with the best score, the first of equals; None if none is finished."""
    scored = _scored(trials)
    return max(scored, key=lambda pair: pair[1])[0] if scored else None


@dataclass(frozen=True)
class Flatness:
    """How much the score depends on the chosen options, in the unit of the criterion."""

    trials: int  # number of finished trials
    near: int  # number of finished trials that are almost as good as the best, including it
    drop: float  # best score minus median score
    spans: Mapping[str, float]  # option -> largest difference of the best scores of its values


def flatness(
    trials: Iterable[Trial],
    dimensions: Mapping[str, Dimension],
    sampler: Sampler,
    select: CriterionName,
) -> Flatness | None:
    """How flat the optimum is; None without a finished trial.

    Almost as good are trials whose criterion differs by no more than another seed would change it.
    Values that were drawn from a range are compared by the quarter of the range they lie in.
    """
    scored = _scored(trials)
    if not scored:
        return None
    spans = {}
    for name, dimension in dimensions.items():
        sliced = sampler == "tpe" and dimension.bounds is not None
        best: dict[Any, float] = {}
        for trial, score in scored:
            value = trial.options[name]
            key = dimension.slice(value) if sliced else value
            best[key] = max(score, best.get(key, -math.inf))
        spans[name] = max(best.values()) - min(best.values())
    scores = [score for _, score in scored]
    top = max(scores)
    return Flatness(
        trials=len(scores),
        near=sum(top - score <= CRITERIA[select].near + 1e-12 for score in scores),
        drop=top - statistics.median(scores),
        spans=spans,
    )


def _scored(trials: Iterable[Trial]) -> list[tuple[Trial, float]]:
    """The finished trials with their scores."""
    return [(trial, trial.score) for trial in trials if trial.score is not None]

"""What a search may try, and what is chosen: no clean number reaches this file."""

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
from adagc.training.records import EpochRecord

if TYPE_CHECKING:
    from adagc.methods import Method

Sampler = Literal["grid", "tpe"]
State = Literal["finished", "pruned", "failed", "started", "missing"]
PRUNED = "pruned.json"  # in the folder of a run that was not worth going on with
NEAR = 0.005  # half a point of mAP: less than what another seed changes
_DECADE = 10  # values that far apart differ by their order, not by their distance
_DIGITS = 4  # of a drawn value: what a name and a file can show is what was trained
_SLICES = 4  # of a range, when asking where in it the score was best


@dataclass(frozen=True)
class Dimension:
    """One option: the values of its grid and, if they are numbers, the range that they span."""

    values: tuple[Any, ...]  # in the order of the grid
    bounds: tuple[float, float] | None = None  # None: only the values themselves make sense
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether the range is one of integers."""
        return self.bounds is not None and isinstance(self.bounds[0], int)

    def contains(self, value: Any) -> bool:
        """Whether a sampler that draws from ranges could draw it."""
        if self.bounds is None:
            return value in self.values
        if not _is_number(value) or (self.whole and not float(value).is_integer()):
            return False
        return bool(self.bounds[0] <= value <= self.bounds[1])

    def fit(self, value: Any) -> Any:
        """A value of the range with as many digits as are worth telling."""
        if self.bounds is None:
            return value
        if self.whole:
            return int(value)  # a default of 3.0 is the 3 of the range, not a second trial
        low, high = self.bounds
        return min(max(float(f"{value:.{_DIGITS}g}"), low), high)

    def slice(self, value: Any) -> int:
        """In which quarter of the range a value lies."""
        assert self.bounds is not None
        low, high, here = (
            math.log(number) if self.log else number for number in (*self.bounds, value)
        )
        return min(int(_SLICES * (here - low) / (high - low)), _SLICES - 1)


def space(method: type[Method]) -> dict[str, Dimension]:
    """The options of a method that are worth tuning; one without any cannot be tuned."""
    if not method.grid:
        raise UsageError(
            f"{method.title} has nothing to tune: none of its options has values worth trying"
            f" (adagc methods {method.title})"
        )
    anything = (-math.inf, math.inf)
    return {
        name: _dimension(values, method.ranges.get(name, anything))
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
    """Every combination of values, the last option changing fastest.

    With fewer trials than combinations some are drawn, always the same: who asks for more later
    keeps what is there.
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
    """All that choosing may know of a trial: a clean score has no place in it."""

    options: Mapping[str, Any]  # those that are tuned
    state: State
    noisy: Mapping[int, float]  # seed -> mAP on noisy validation labels, of finished runs
    seconds: float  # of training
    epochs: int  # trained, over all seeds
    reason: str = ""  # why it failed

    @property
    def score(self) -> float | None:
        """The mean over seeds, once all of them are there."""
        return statistics.mean(self.noisy.values()) if self.state == "finished" else None

    @property
    def name(self) -> str:
        """For people: "weight=3 momentum=0.9"."""
        return name_of(self.options)


def state_of(jobs: Sequence[Job]) -> State:
    """What the folders of a trial say, one per seed."""
    states = {job.status for job in jobs}
    if states == {"finished"}:
        return "finished"
    if any(job.run.path(PRUNED).exists() for job in jobs):
        return "pruned"
    if "failed" in states:
        return "failed"
    return "missing" if states == {"missing"} else "started"


def read(options: Mapping[str, Any], jobs: Sequence[Job], by: Choice) -> Trial:
    """The trial whose runs these are."""
    state, noisy, seconds, epochs, reason = state_of(jobs), {}, 0.0, 0, ""
    for job in jobs:
        lines = job.run.history
        seconds += sum(line.seconds for line in lines)
        epochs += len(lines)
        if job.status == "finished":
            values = [noisy_map(line) for line in lines]
            noisy[job.seed] = values[-1] if by == "last" else max(values)
        elif job.status == "failed" and state == "failed":  # not if it was pruned since then
            reason = reason or failure_of(job)
    return Trial(dict(options), state, noisy, seconds, epochs, reason)


def noisy_map(line: EpochRecord) -> float:
    """The one number of an epoch's record that a search goes by."""
    return line.noisy[line.deployed].mean_average_precision


def name_of(options: Mapping[str, Any]) -> str:
    """Options in one line."""
    return " ".join(f"{key}={short(value)}" for key, value in options.items())


def short(value: Any) -> str:
    """One option as people write it: 3 for 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def choose(trials: Iterable[Trial]) -> Trial | None:
    """The best mean noisy score; of equals the first."""
    scored = _scored(trials)
    return max(scored, key=lambda pair: pair[1])[0] if scored else None


@dataclass(frozen=True)
class Flatness:
    """How much depends on the choice; scores are fractions."""

    trials: int  # finished
    near: int  # of them within half a point of the best, itself included
    drop: float  # from the best to the median
    spans: Mapping[str, float]  # option -> how far apart the best scores of its values are


def flatness(
    trials: Iterable[Trial], dimensions: Mapping[str, Dimension], sampler: Sampler
) -> Flatness | None:
    """How flat the optimum is; values from a range are looked at in quarters of it."""
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
        near=sum(top - score <= NEAR + 1e-12 for score in scores),
        drop=top - statistics.median(scores),
        spans=spans,
    )


def _scored(trials: Iterable[Trial]) -> list[tuple[Trial, float]]:
    """The finished ones."""
    return [(trial, trial.score) for trial in trials if trial.score is not None]

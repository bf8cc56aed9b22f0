"""What a search may try, who tries it, and what is chosen: no clean number reaches this file.

A trial is a bench job per seed, so what its folder says is what counts. Optuna's journal only says
which options were handed out; when it is lost, the folders are found again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import statistics
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
from filelock import FileLock, Timeout

from adagc.bench.jobs import Job, make_job, slug
from adagc.bench.results import Choice
from adagc.bench.scenarios import Scenario
from adagc.bench.work import failure_of
from adagc.errors import AdagcError, MissingExtraError, UsageError, check_range
from adagc.methods.base import Method
from adagc.training.runs import Run

Sampler = Literal["grid", "tpe"]
State = Literal["finished", "pruned", "failed", "started", "missing"]
NEAR = 0.005  # half a point of mAP: less than what another seed changes
_DECADE = 10  # values that far apart differ by their order, not by their distance
_DIGITS = 4  # of a drawn value: what a name and a file can show is what was trained
_SLICES = 4  # of a range, when asking where in it the score was best
_LONGEST = 100  # characters of a folder's name; its digest tells apart what they do not
_POLL = 0.5  # seconds between two looks at what other processes do
TRIALS = 30  # of a sampler that could go on for ever
PRUNED = "pruned.json"  # in the folder of a run that was not worth going on with


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
        if not _is_number(value) or (self.whole and value != int(value)):
            return False
        return bool(self.bounds[0] <= value <= self.bounds[1])

    def fit(self, value: Any) -> Any:
        """A drawn value with as many digits as are worth telling."""
        if self.bounds is None or self.whole:
            return value
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


def name_of(options: Mapping[str, Any]) -> str:
    """Options in one line."""
    return " ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in options.items()
    )


def choose(trials: Iterable[Trial]) -> Trial | None:
    """The best mean noisy score; of equals the first."""
    return max(_finished(trials), key=_score, default=None)


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
    finished = _finished(trials)
    if not finished:
        return None
    scores = [_score(trial) for trial in finished]
    spans = {}
    for name, dimension in dimensions.items():
        sliced = sampler == "tpe" and dimension.bounds is not None
        best: dict[Any, float] = {}
        for trial, score in zip(finished, scores, strict=True):
            value = trial.options[name]
            key = dimension.slice(value) if sliced else value
            best[key] = max(score, best.get(key, -math.inf))
        spans[name] = max(best.values()) - min(best.values())
    top = max(scores)
    return Flatness(
        trials=len(finished),
        near=sum(top - score <= NEAR + 1e-12 for score in scores),
        drop=top - statistics.median(scores),
        spans=spans,
    )


def _finished(trials: Iterable[Trial]) -> Sequence[Trial]:
    return [trial for trial in trials if trial.score is not None]


def _score(trial: Trial) -> float:
    assert trial.score is not None
    return trial.score


@dataclass(frozen=True)
class Plan:
    """What makes a study this one and no other, and where its runs lie."""

    scenario: Scenario  # with the share and the epochs of the search
    method: type[Method]
    out: Path
    sampler: Sampler
    by: Choice  # whether the last or the best epoch is judged
    seeds: tuple[int, ...]
    pruning: bool
    _jobs: dict[str, list[Job]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def space(self) -> dict[str, Dimension]:
        """The options that are tuned."""
        return space(self.method)

    @cached_property
    def told(self) -> dict[str, Any]:
        """What the scenario says of the other options."""
        told = self.scenario.told(self.method.title)
        return {name: value for name, value in told.items() if name not in self.space}

    @cached_property
    def epochs(self) -> int:
        """Of every run."""
        return self.scenario.config(self.seeds[0]).epochs

    @property
    def root(self) -> Path:
        """Of all studies of the scenario."""
        return self.out / self.scenario.name / "tune"

    @property
    def folder(self) -> Path:
        """Of the runs of this study, and of others of the same method and sampler."""
        return self.root / slug(self.method.title) / self.sampler

    @cached_property
    def name(self) -> str:
        """The same on every machine that shares the folder, for the same settings only."""
        runs = [Path(job.folder).name for job in self._made(self.told, "")]
        values = [[name, dimension.values] for name, dimension in self.space.items()]
        digest = hashlib.sha256(json.dumps([runs, values], default=str).encode()).hexdigest()
        return f"{slug(self.method.title)}-{self.sampler}-{self.by}-{digest[:8]}"

    @cached_property
    def start(self) -> dict[str, Any] | None:
        """What the method does untuned, if the search could have come upon it."""
        options = self._made(self.scenario.told(self.method.title), "")[0].options
        return self._within(options)

    def jobs(self, point: Mapping[str, Any]) -> list[Job]:
        """One run per seed."""
        name = name_of(point)
        key = repr(sorted(point.items()))
        if key not in self._jobs:
            self._jobs[key] = self._made({**self.told, **point}, name)
        return self._jobs[key]

    def _made(self, options: Mapping[str, Any], name: str) -> list[Job]:
        label = f"{self.method.title} {name}"
        jobs = [
            make_job(self.scenario, self.method.title, seed, self.out, options=options, label=label)
            for seed in self.seeds
        ]
        place = self.folder / slug(name)[:_LONGEST]
        return [replace(job, folder=str(place / Path(job.folder).name)) for job in jobs]

    def _within(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        point = {name: options.get(name) for name in self.space}
        good = all(self.space[name].contains(value) for name, value in point.items())
        return point if good else None

    def found(self) -> Iterator[dict[str, Any]]:
        """The points whose runs lie in the folder and have the settings of this study."""
        runs = self.folder.glob(f"*/seed{self.seeds[0]}-*/config.yaml")
        for path in sorted(runs, key=lambda path: path.stat().st_mtime_ns):
            try:
                options = Run.open(path.parent).config["method"]
            except AdagcError:
                continue  # damaged: nothing to take up
            point = self._within(options)
            if point is not None and self.jobs(point)[0].folder == str(path.parent):
                yield point

    def state(self, point: Mapping[str, Any]) -> State:
        """What the folders say."""
        jobs = self.jobs(point)
        states = {job.status for job in jobs}
        if states == {"finished"}:
            return "finished"
        if any(job.run.path(PRUNED).exists() for job in jobs):
            return "pruned"
        if "failed" in states:
            return "failed"
        return "missing" if states == {"missing"} else "started"

    def read(self, point: Mapping[str, Any]) -> Trial:
        """What may be known of a trial."""
        noisy, seconds, epochs, reason = {}, 0.0, 0, ""
        for job in self.jobs(point):
            lines = job.run.history
            seconds += sum(line["seconds"] for line in lines)
            epochs += len(lines)
            if job.status == "finished":
                values = [noisy_map(line) for line in lines]
                noisy[job.seed] = values[-1] if self.by == "last" else max(values)
            elif job.status == "failed":
                reason = reason or failure_of(job)
        return Trial(dict(point), self.state(point), noisy, seconds, epochs, reason)


def noisy_map(line: Mapping[str, Any]) -> float:
    """The one number of an epoch's record that a search goes by."""
    return float(line["noisy"]["network"]["mean_average_precision"])


class Claim:
    """A trial that this process works on and no other; the claim ends with the process."""

    def __init__(self, point: dict[str, Any], jobs: list[Job], trial: Any, lock: FileLock) -> None:
        self.point, self.jobs, self.trial = point, jobs, trial
        self._lock = lock
        self._steps: set[int] = set()

    def report(self, step: int, value: float) -> None:
        """Tell the pruner; what it was told before, it is not told again."""
        if step not in self._steps:
            self._steps.add(step)
            self.trial.report(value, step)

    def hopeless(self) -> bool:
        """Whether the pruner would stop here."""
        return bool(self.trial.should_prune())

    def release(self) -> None:
        """Let go."""
        self._lock.release()


class Ledger:
    """Which trials wait, run and are done: one file for all processes, also on other machines.

    All that reads and then writes it happens under one lock, which the system takes back from a
    process that dies. Whoever takes a trial holds the trial's own lock: a trial that counts as
    running while its lock is free was abandoned, and is handed out again.
    """

    def __init__(self, plan: Plan, trials: int | None) -> None:
        check_range("trials", trials, 1)
        self._optuna = _optuna()
        self._plan = plan
        self._wanted = trials
        self._distributions = {
            name: self._distribution(dimension) for name, dimension in plan.space.items()
        }
        name = plan.name  # which checks all settings, before anything is written
        plan.root.mkdir(parents=True, exist_ok=True)
        path = plan.root / "studies.journal"
        self._lock = FileLock(path.with_suffix(".lock"))  # not Optuna's own studies.journal.lock
        with self._lock:
            self._study = self._open(path, name)
            self._fill()
            self._mend()

    def take(self) -> Claim | None:
        """The next trial; waits while other processes might leave one, None when all are done."""
        while True:
            with self._lock:
                self._take_back()
                trials = self._trials()
                if self._more(trials):
                    claim = self._claim(self._begun(trials))
                    if claim is not None:
                        return claim
                elif not any(trial.state.name == "RUNNING" for trial in trials):
                    return None
            time.sleep(_POLL)

    def close(self, claim: Claim) -> Trial:
        """Note how it ended, which its folders say."""
        trial = self._plan.read(claim.point)
        states = self._optuna.trial.TrialState
        if trial.score is not None:
            self._study.tell(claim.trial, trial.score)
        else:
            ended = states.PRUNED if trial.state == "pruned" else states.FAIL
            self._study.tell(claim.trial, state=ended)
        return trial

    def points(self) -> list[dict[str, Any]]:
        """Everything that was handed out, once, in the order of the grid or of the trials."""
        found = (self._point(trial) for trial in self._trials())
        known = {_key(point): point for point in found if point is not None}
        if self._plan.sampler == "grid":
            return [point for point in grid(self._plan.space) if _key(point) in known]
        return list(known.values())

    def _open(self, path: Path, name: str) -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        _drop_half_a_line(path)
        try:
            # Optuna's own locks are files, which a process that is killed leaves behind.
            storage = JournalStorage(JournalFileBackend(str(path), cast(Any, self._lock)))
        except (ValueError, KeyError):
            raise AdagcError(
                f"{path} is damaged: delete it, the trials are found again in their folders"
            ) from None
        pruners = self._optuna.pruners
        patience = max(1, self._plan.epochs // 3)
        return self._optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruners.MedianPruner(n_warmup_steps=patience)
            if self._plan.pruning
            else pruners.NopPruner(),
        )

    def _distribution(self, dimension: Dimension) -> Any:
        kinds = self._optuna.distributions
        if self._plan.sampler == "grid" or dimension.bounds is None:
            return kinds.CategoricalDistribution(dimension.values)
        low, high = dimension.bounds
        kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
        return kind(low, high, log=dimension.log)

    def _fill(self) -> None:
        """Queue what is known from the start."""
        if self._plan.sampler == "grid":
            points = grid(self._plan.space, self._wanted)
        elif self._trials():
            points = []
        else:
            # The journal is new. Its folders may not be; they are quickly gone through.
            start = [] if self._plan.start is None else [self._plan.start]
            points = [*start, *self._plan.found()]
        for point in points:
            self._study.enqueue_trial(point, skip_if_exists=True)

    def _mend(self) -> None:
        """Queue again what ended without a result, or whose folder is gone."""
        open_ = {_key(self._point(t)) for t in self._trials() if not t.state.is_finished()}
        for point in self.points():
            lost = self._plan.state(point) not in ("finished", "pruned")
            if lost and _key(point) not in open_:
                self._again(point)

    def _take_back(self) -> None:
        """Queue again what was abandoned."""
        for trial in self._trials():
            if trial.state.name != "RUNNING":
                continue
            point = self._point(trial)
            lock = None if point is None else self._locked(point)
            if point is not None and lock is None:
                continue  # somebody is at it
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            if point is not None and lock is not None:
                lock.release()
                self._again(point)

    def _again(self, point: dict[str, Any]) -> None:
        # Optuna knows no way back from an ended trial; a second one stands for it.
        self._study.enqueue_trial(point, user_attrs={"again": True})

    def _more(self, trials: Sequence[Any]) -> bool:
        if any(trial.state.name == "WAITING" for trial in trials):
            return True
        return self._plan.sampler == "tpe" and len(self._begun(trials)) < (self._wanted or TRIALS)

    def _begun(self, trials: Sequence[Any]) -> list[dict[str, Any]]:
        """What was handed out; what was handed out again counts once."""
        points = [self._point(trial) for trial in trials if "again" not in trial.user_attrs]
        return [point for point in points if point is not None]

    def _claim(self, begun: Sequence[dict[str, Any]]) -> Claim | None:
        samplers = self._optuna.samplers
        # Seeded by what there is: no two processes draw alike, and a search can be repeated.
        seed = zlib.crc32(repr(sorted(map(repr, begun))).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant_liar counted as experimental once
            self._study.sampler = samplers.TPESampler(seed=seed, constant_liar=True)
        trial = self._study.ask(self._distributions)
        point = self._fit(trial.params)
        lock = self._locked(point)
        # Without the lock somebody is at the same options under another number: wait for them.
        return None if lock is None else Claim(point, self._plan.jobs(point), trial, lock)

    def _locked(self, point: Mapping[str, Any]) -> FileLock | None:
        """The lock of a trial, if nobody has it."""
        folder = Path(self._plan.jobs(point)[0].folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{folder}.trial.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _point(self, trial: Any) -> dict[str, Any] | None:
        """The options of a trial; None if its process died before it had drawn them all."""
        asked = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        return self._fit(asked) if asked.keys() == self._plan.space.keys() else None

    def _fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a grid as they are, drawn ones with the digits that are worth telling."""
        drawn = self._plan.sampler == "tpe"
        return {
            name: dimension.fit(asked[name]) if drawn else asked[name]
            for name, dimension in self._plan.space.items()
        }


def _key(point: Mapping[str, Any] | None) -> tuple[Any, ...]:
    return () if point is None else tuple(point.items())


def _drop_half_a_line(path: Path) -> None:
    """Remove what a process that was killed while writing left: the next line would join it."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtraError("optuna, which keeps the trials of a search,", "bench") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna

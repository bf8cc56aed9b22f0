"""Distributes the trials of a search over any number of processes.

A trial consists of one bench job per seed, and its results are read from their run folders.
Optuna's journal only records which options were tried. If the journal is lost, the trials are read
from the run folders again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock, Timeout

from adagc.bench.jobs import Job, make_job, slug
from adagc.bench.results import Choice
from adagc.bench.scenarios import Scenario
from adagc.errors import AdagcError, MissingExtraError, check_range
from adagc.methods.told import TunedOn
from adagc.metrics import CriterionName
from adagc.training.runs import Run
from adagc.tuning.search import Dimension, Sampler, Trial, grid, name_of, read, space, state_of

if TYPE_CHECKING:
    from adagc.methods import Method

_TRIALS = 30  # default number of trials of a sampler that has no natural end
_LONGEST = 100  # characters of a folder's name; the digest inside distinguishes longer names
_POLL = 0.5  # seconds between two checks of what other processes have done


@dataclass(frozen=True)
class Plan:
    """All settings of a study, which together identify it, and the folders of its runs."""

    scenario: Scenario  # with the share of images and the number of epochs of the search
    method: type[Method]
    out: Path
    sampler: Sampler
    by: Choice  # whether the last or the best epoch of a run is its score
    select: CriterionName  # the criterion that chooses epochs and options
    seeds: tuple[int, ...]
    pruning: bool
    _jobs: dict[str, list[Job]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def space(self) -> dict[str, Dimension]:
        """The options that are tuned, by name."""
        return space(self.method)

    @cached_property
    def told(self) -> dict[str, Any]:
        """The scenario's values of options that are not tuned."""
        told = self.scenario.told(self.method.title)
        return {name: value for name, value in told.items() if name not in self.space}

    @property
    def tuned_on(self) -> TunedOn:
        """Labels by which options are chosen: clean ones if those that are not tuned were."""
        kept = self.scenario.tuned_on(self.method.title) if self.told else None
        return "clean" if kept == "clean" else "noisy"

    @cached_property
    def epochs(self) -> int:
        """Number of epochs of every run."""
        return self.scenario.config(self.seeds[0]).epochs

    @property
    def root(self) -> Path:
        """Folder of all studies of the scenario."""
        return self.out / self.scenario.name / "tune"

    @property
    def folder(self) -> Path:
        """Folder of the runs of all studies with the same method and sampler."""
        return self.root / slug(self.method.title) / self.sampler

    @cached_property
    def name(self) -> str:
        """Name of the study: equal on all machines for equal settings, else different."""
        runs = [Path(job.folder).name for job in self._made(self.told, "")]
        values = [[name, dimension.values] for name, dimension in self.space.items()]
        digest = hashlib.sha256(json.dumps([runs, values], default=str).encode()).hexdigest()
        return f"{slug(self.method.title)}-{self.sampler}-{self.by}-{digest[:8]}"

    @cached_property
    def start(self) -> dict[str, Any] | None:
        """The options of the untuned method; None if they lie outside the search space.

        Those that are left open, to follow from class frequencies, begin at their published number.
        """
        options = self._made(self.scenario.told(self.method.title), "")[0].options
        return self._within({
            name: self.method.fixed.get(name) if value is None else value
            for name, value in options.items()
        })  # fmt: skip

    def jobs(self, point: Mapping[str, Any]) -> list[Job]:
        """The jobs of a trial with these options, one per seed."""
        key = repr(sorted(point.items()))
        if key not in self._jobs:  # kept, because making jobs reads label files
            self._jobs[key] = self._made({**self.told, **point}, name_of(point))
        return self._jobs[key]

    def _made(self, options: Mapping[str, Any], name: str) -> list[Job]:
        title, place = self.method.title, self.folder / slug(name)[:_LONGEST]
        jobs = [
            make_job(
                self.scenario,
                title,
                seed,
                self.out,
                options=options,
                label=f"{title} {name}",
                tuned_on=self.tuned_on,
            )
            for seed in self.seeds
        ]
        return [replace(job, folder=str(place / Path(job.folder).name)) for job in jobs]

    def _within(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        known = all(dimension.contains(options.get(name)) for name, dimension in self.space.items())
        return self.fit(options) if known else None

    def fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the tuned options; those drawn from a range are rounded."""
        drawn = self.sampler == "tpe"
        return {
            name: dimension.fit(asked[name]) if drawn else asked[name]
            for name, dimension in self.space.items()
        }

    def found(self) -> Iterator[dict[str, Any]]:
        """The options of all trials of this study that have a run folder, oldest first."""
        runs = self.folder.glob(f"*/seed{self.seeds[0]}-*/config.yaml")
        for path in sorted(runs, key=lambda path: path.stat().st_mtime_ns):
            try:
                options = Run.open(path.parent).settings.options
            except AdagcError:
                continue  # a damaged run folder cannot be continued
            point = self._within(options)
            if point is not None and self.jobs(point)[0].folder == str(path.parent):
                yield point

    def read(self, point: Mapping[str, Any]) -> Trial:
        """The trial with these options, as far as the choice may know it."""
        return read(point, self.jobs(point), self.by, self.select)


@dataclass(frozen=True)
class Claim:
    """A trial that only this process works on; the claim ends at the latest with the process."""

    point: Mapping[str, Any]  # values of the tuned options
    jobs: Sequence[Job]  # one per seed
    trial: Any  # Optuna's trial
    lock: FileLock  # held until the trial has ended
    _steps: set[int] = field(default_factory=set)

    def report(self, step: int, value: float) -> None:
        """Report a score to the pruner, unless this step was reported before."""
        if step not in self._steps:
            self._steps.add(step)
            self.trial.report(value, step)

    def hopeless(self) -> bool:
        """Whether the pruner would stop the trial here."""
        return bool(self.trial.should_prune())


class Ledger:
    """Records which trials wait, run or have ended, in one file that all processes share.

    The processes may run on different machines. Every change of the file is made under one lock,
    which the operating system releases if its process dies. A process that works on a trial also
    holds the lock of that trial. So a trial that is recorded as running while its lock is free was
    abandoned, and is given to another process.
    """

    def __init__(self, plan: Plan, trials: int | None) -> None:
        check_range("trials", trials, 1)
        self._optuna = _optuna()
        self._plan, self._wanted = plan, trials
        name = plan.name  # making the name checks all settings before anything is written
        plan.root.mkdir(parents=True, exist_ok=True)
        path = plan.root / "studies.journal"
        self._lock = FileLock(path.with_suffix(".lock"))  # not Optuna's own studies.journal.lock
        with self._lock:
            self._study = self._open(path, name)
            self._fill()
            self._mend()

    @property
    def wanted(self) -> int:
        """Number of trials when all are done."""
        if self._plan.sampler == "grid":
            return len(grid(self._plan.space, self._wanted))
        return self._wanted or _TRIALS

    @property
    def ended(self) -> int:
        """Number of trials that have ended, those of other processes included."""
        going_on = {repr(self._point(trial)) for trial in self._trials("WAITING", "RUNNING")}
        return sum(repr(point) not in going_on for point in self.points())

    def take(self) -> Claim | None:
        """The next trial, or None if all have ended.

        Waits while other processes work on the last trials, because they might abandon one.
        """
        while True:
            with self._lock:
                self._take_back()
                begun = self._begun()
                draw = self._plan.sampler == "tpe" and len(begun) < (self._wanted or _TRIALS)
                if draw or self._trials("WAITING"):
                    claim = self._claim(begun)
                    if claim is not None:
                        return claim
                elif not self._trials("RUNNING"):
                    return None
            pause()

    def close(self, claim: Claim) -> None:
        """Record how the trial ended, which is read from its run folders."""
        trial = self._plan.read(claim.point)
        if trial.score is not None:
            self._study.tell(claim.trial, trial.score)
        else:
            self._end(claim.trial, "PRUNED" if trial.state == "pruned" else "FAIL")

    def points(self) -> list[dict[str, Any]]:
        """The options of all trials without repetition, in the order of the grid or of trials."""
        points = (self._point(trial) for trial in self._trials())
        known = {repr(point): point for point in points if point is not None}
        if self._plan.sampler == "grid":
            return [point for point in grid(self._plan.space) if repr(point) in known]
        return list(known.values())

    def _open(self, path: Path, name: str) -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        _drop_half_a_line(path)
        try:
            # Not Optuna's own locks: they are files, which a killed process leaves behind.
            storage = JournalStorage(JournalFileBackend(str(path), cast(Any, self._lock)))
        except (ValueError, KeyError):
            raise AdagcError(
                f"{path} is damaged: delete it; the trials will be read from their run folders"
            ) from None
        study = self._optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )
        warm_up = max(1, self._plan.epochs // 3)
        study.pruner = self._optuna.pruners.MedianPruner(n_warmup_steps=warm_up)
        return study

    def _distribution(self, dimension: Dimension) -> Any:
        kinds = self._optuna.distributions
        if self._plan.sampler == "grid" or dimension.bounds is None:
            return kinds.CategoricalDistribution(dimension.values)
        low, high = dimension.bounds
        kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
        return kind(low, high, log=dimension.log)

    def _fill(self) -> None:
        """Queue the trials that are known from the start."""
        if self._plan.sampler == "grid":
            points = grid(self._plan.space, self._wanted)
        elif self._trials():
            points = []
        else:
            # The journal is new, but there may be run folders of trials whose journal was lost.
            # They are queued too; what is finished is not trained again.
            start = [] if self._plan.start is None else [self._plan.start]
            points = [*start, *self._plan.found()]
        for point in points:
            self._study.enqueue_trial(point, skip_if_exists=True)

    def _mend(self) -> None:
        """Queue again the trials that ended without a result or whose run folders are gone."""
        results = ("finished", "pruned") if self._plan.pruning else ("finished",)
        open_points = {repr(self._point(trial)) for trial in self._trials("WAITING", "RUNNING")}
        for point in self.points():
            if state_of(self._plan.jobs(point)) not in results and repr(point) not in open_points:
                self._again(point)

    def _take_back(self) -> None:
        """Queue again the trials that were abandoned by a process that died."""
        for trial in self._trials("RUNNING"):
            point = self._point(trial)
            if point is None:
                self._end(trial.number, "FAIL")
            elif (lock := self._locked(point)) is not None:  # else a process is working on it
                self._end(trial.number, "FAIL")
                lock.release()
                self._again(point)

    def _again(self, point: dict[str, Any]) -> None:
        # Optuna cannot reopen a trial that has ended, so a second trial takes its place.
        self._study.enqueue_trial(point, user_attrs={"again": True})

    def _end(self, trial: Any, state: str) -> None:
        self._study.tell(trial, state=self._optuna.trial.TrialState[state])

    def _begun(self) -> list[dict[str, Any]]:
        """The options of all trials that were begun; a trial that was queued again counts once."""
        points = [self._point(trial) for trial in self._trials() if "again" not in trial.user_attrs]
        return [point for point in points if point is not None]

    def _claim(self, begun: Sequence[dict[str, Any]]) -> Claim | None:
        # Seeded by the trials so far: no two processes draw the same, and a search is repeatable.
        seed = zlib.crc32(repr(sorted(map(repr, begun))).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older versions call constant_liar experimental
            sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study.sampler = sampler
        space = self._plan.space.items()
        trial = self._study.ask({name: self._distribution(values) for name, values in space})
        point = self._plan.fit(trial.params)
        lock = self._locked(point)
        # If the lock is taken, another process works on a trial with the same options: wait.
        return None if lock is None else Claim(point, self._plan.jobs(point), trial, lock)

    def _locked(self, point: Mapping[str, Any]) -> FileLock | None:
        """The lock of a trial, now held by this process; None if another process holds it."""
        folder = Path(self._plan.jobs(point)[0].folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{folder}.trial.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock

    def _trials(self, *states: str) -> list[Any]:
        """Optuna's trials: those in one of these states, or all if none is given."""
        wanted = [self._optuna.trial.TrialState[state] for state in states]
        return list(self._study.get_trials(deepcopy=False, states=wanted or None))

    def _point(self, trial: Any) -> dict[str, Any] | None:
        """The options of a trial; None if its process died before it had drawn them all."""
        asked = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        return self._plan.fit(asked) if asked.keys() == self._plan.space.keys() else None


def pause() -> None:
    """Wait a moment for other processes."""
    time.sleep(_POLL)


def _drop_half_a_line(path: Path) -> None:
    """Remove an incomplete last line, which a process that was killed while writing has left.

    The next line would be appended to it.
    """
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtraError("optuna, which keeps the trials of a search,", "bench") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna

"""Which trials a search hands out, to any number of processes.

A trial is a bench job per seed, so what its folder says is what counts. Optuna's journal only says
which options were handed out; when it is lost, the folders are found again.
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
from adagc.training.runs import Run
from adagc.tuning.search import Dimension, Sampler, Trial, grid, name_of, read, space, state_of

if TYPE_CHECKING:
    from adagc.methods import Method

_TRIALS = 30  # of a sampler that could go on for ever
_LONGEST = 100  # characters of a folder's name; its digest tells apart what they do not
_POLL = 0.5  # seconds between two looks at what other processes do


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
        return self._within(self._made(self.scenario.told(self.method.title), "")[0].options)

    def jobs(self, point: Mapping[str, Any]) -> list[Job]:
        """One run per seed."""
        key = repr(sorted(point.items()))
        if key not in self._jobs:  # making them reads label files
            self._jobs[key] = self._made({**self.told, **point}, name_of(point))
        return self._jobs[key]

    def _made(self, options: Mapping[str, Any], name: str) -> list[Job]:
        title, place = self.method.title, self.folder / slug(name)[:_LONGEST]
        jobs = [
            make_job(self.scenario, title, seed, self.out, options=options, label=f"{title} {name}")
            for seed in self.seeds
        ]
        return [replace(job, folder=str(place / Path(job.folder).name)) for job in jobs]

    def _within(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        known = all(own.contains(options.get(name)) for name, own in self.space.items())
        return self.fit(options) if known else None

    def fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a grid as they are, drawn ones with the digits that are worth telling."""
        drawn = self.sampler == "tpe"
        return {n: own.fit(asked[n]) if drawn else asked[n] for n, own in self.space.items()}

    def found(self) -> Iterator[dict[str, Any]]:
        """The points whose runs lie in the folder and have the settings of this study."""
        runs = self.folder.glob(f"*/seed{self.seeds[0]}-*/config.yaml")
        for path in sorted(runs, key=lambda path: path.stat().st_mtime_ns):
            try:
                options = Run.open(path.parent).settings.options
            except AdagcError:
                continue  # damaged: nothing to take up
            point = self._within(options)
            if point is not None and self.jobs(point)[0].folder == str(path.parent):
                yield point

    def read(self, point: Mapping[str, Any]) -> Trial:
        """What may be known of a trial."""
        return read(point, self.jobs(point), self.by)


@dataclass(frozen=True)
class Claim:
    """A trial that this process works on and no other; the claim ends with the process."""

    point: Mapping[str, Any]
    jobs: Sequence[Job]
    trial: Any  # Optuna's
    lock: FileLock  # held
    _steps: set[int] = field(default_factory=set)

    def report(self, step: int, value: float) -> None:
        """Tell the pruner; what it was told before, it is not told again."""
        if step not in self._steps:
            self._steps.add(step)
            self.trial.report(value, step)

    def hopeless(self) -> bool:
        """Whether the pruner would stop here."""
        return bool(self.trial.should_prune())


class Ledger:
    """Which trials wait, run and are done: one file for all processes, also on other machines.

    All that reads and then writes it happens under one lock, which the system takes back from a
    process that dies. Whoever takes a trial holds the trial's own lock: a trial that counts as
    running while its lock is free was abandoned, and is handed out again.
    """

    def __init__(self, plan: Plan, trials: int | None) -> None:
        check_range("trials", trials, 1)
        self._optuna = _optuna()
        self._plan, self._wanted = plan, trials
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
        """Note how it ended, which its folders say."""
        trial = self._plan.read(claim.point)
        if trial.score is not None:
            self._study.tell(claim.trial, trial.score)
        else:
            self._end(claim.trial, "PRUNED" if trial.state == "pruned" else "FAIL")

    def points(self) -> list[dict[str, Any]]:
        """Everything that was handed out, once, in the order of the grid or of the trials."""
        found = (self._point(trial) for trial in self._trials())
        known = {repr(point): point for point in found if point is not None}
        if self._plan.sampler == "grid":
            return [point for point in grid(self._plan.space) if repr(point) in known]
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
        study = self._optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )
        patience = max(1, self._plan.epochs // 3)
        study.pruner = self._optuna.pruners.MedianPruner(n_warmup_steps=patience)
        return study

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
        results = ("finished", "pruned") if self._plan.pruning else ("finished",)
        going = {repr(self._point(trial)) for trial in self._trials("WAITING", "RUNNING")}
        for point in self.points():
            if state_of(self._plan.jobs(point)) not in results and repr(point) not in going:
                self._again(point)

    def _take_back(self) -> None:
        """Queue again what was abandoned."""
        for trial in self._trials("RUNNING"):
            point = self._point(trial)
            if point is None:
                self._end(trial.number, "FAIL")
            elif (lock := self._locked(point)) is not None:  # else somebody is at it
                self._end(trial.number, "FAIL")
                lock.release()
                self._again(point)

    def _again(self, point: dict[str, Any]) -> None:
        # Optuna knows no way back from an ended trial; a second one stands for it.
        self._study.enqueue_trial(point, user_attrs={"again": True})

    def _end(self, trial: Any, state: str) -> None:
        self._study.tell(trial, state=self._optuna.trial.TrialState[state])

    def _begun(self) -> list[dict[str, Any]]:
        """What was handed out; what was handed out again counts once."""
        points = [self._point(trial) for trial in self._trials() if "again" not in trial.user_attrs]
        return [point for point in points if point is not None]

    def _claim(self, begun: Sequence[dict[str, Any]]) -> Claim | None:
        # Seeded by what there is: no two processes draw alike, and a search can be repeated.
        seed = zlib.crc32(repr(sorted(map(repr, begun))).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant_liar counted as experimental once
            sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study.sampler = sampler
        space = self._plan.space.items()
        trial = self._study.ask({name: self._distribution(own) for name, own in space})
        point = self._plan.fit(trial.params)
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

    def _trials(self, *states: str) -> list[Any]:
        """Optuna's, all or those in these states."""
        wanted = [self._optuna.trial.TrialState[state] for state in states]
        return list(self._study.get_trials(deepcopy=False, states=wanted or None))

    def _point(self, trial: Any) -> dict[str, Any] | None:
        """The options of a trial; None if its process died before it had drawn them all."""
        asked = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        return self._plan.fit(asked) if asked.keys() == self._plan.space.keys() else None


def pause() -> None:
    """Give other processes time to get on."""
    time.sleep(_POLL)


def _drop_half_a_line(path: Path) -> None:
    """Remove what a process that was killed while writing left: the next line would join it."""
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

"""What tuning found, for people and for files.

Whether noisy labels chose well is hindsight: clean scores are read from the run folders after the
choice was made, and nothing that chooses can see them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from adagc.atomic import write_text
from adagc.bench.jobs import Job, slug
from adagc.bench.results import Choice
from adagc.errors import AdagcError, UsageError
from adagc.tuning.ledger import Plan
from adagc.tuning.search import (
    NEAR,
    Dimension,
    Flatness,
    Sampler,
    Trial,
    choose,
    flatness,
    noisy_map,
    short,
)
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from rich.table import Table

_ENOUGH = 3  # trials; two are always in one order or the other


@dataclass(frozen=True)
class Hindsight:
    """Clean scores of a finished trial, means over seeds; never used to choose."""

    test: float | None
    validation: float | None  # the oracle's


@dataclass(frozen=True)
class Correlation:
    """Whether noisy validation ranks trials as clean labels do; hindsight, never used."""

    trials: int  # that were tested on clean labels
    test: float | None  # Spearman's, of noisy validation and clean test mAP; None: too few trials
    validation: float | None  # the same with clean validation
    lost: float | None  # clean test mAP of the best trial in hindsight minus that of the choice


@dataclass(frozen=True)
class Study:
    """One method tuned in one scenario."""

    scenario: str
    method: str  # title
    sampler: Sampler
    by: Choice  # whether the last or the best epoch is judged
    share: float
    epochs: int
    seeds: tuple[int, ...]
    told: Mapping[str, Any]  # options that the scenario sets and that are not tuned
    space: Mapping[str, Dimension]
    trials: tuple[Trial, ...]
    hindsight: tuple[Hindsight | None, ...]  # of every trial

    @cached_property
    def best(self) -> Trial | None:
        """The choice; None if no trial finished."""
        return choose(self.trials)

    @cached_property
    def flatness(self) -> Flatness | None:
        """How much depends on the choice."""
        return flatness(self.trials, self.space, self.sampler)

    @cached_property
    def correlation(self) -> Correlation:
        """Whether noisy labels chose well."""
        return pooled_correlation([self])

    @property
    def options(self) -> dict[str, Any]:
        """What the method should be told from now on."""
        if self.best is None:
            reasons = [trial.reason for trial in self.trials if trial.reason]
            why = f" ({reasons[0]})" if reasons else ""
            raise AdagcError(
                f"no trial of {self.method} finished{why}: mend that, then tune again; what was"
                " trained is kept"
            )
        return {**self.told, **self.best.options}

    def count(self, state: str) -> int:
        """Trials in this state."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def protocol(self) -> str:
        """How it was chosen, for people."""
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        return (
            f"{self.share * 100:g} % of the training images, {self.by} of {self.epochs} epochs,"
            f" {seeds}"
        )

    def sentence(self) -> str:
        """The result in a few plain sentences."""
        tried = f"{len(self.trials)} trials ({self.sampler}; {self.protocol})"
        if self.best is None or self.best.score is None or self.flatness is None:
            return f"{self.method} on {self.scenario}: none of {tried} finished."
        flat, clean = self.flatness, self.correlation
        text = (
            f"{self.method} on {self.scenario}: {self.best.name} is the best of {tried} with"
            f" {self.best.score * 100:.2f} noisy mAP. {flat.near} of {flat.trials} finished trials"
            f" are within {NEAR * 100:g} of it, the median is {flat.drop * 100:.2f} below."
        )
        if len(flat.spans) > 1:
            most = max(flat.spans, key=lambda name: flat.spans[name])
            text += f" What matters most is {most} ({flat.spans[most] * 100:.2f})."
        if clean.lost is not None:
            text += f" In hindsight the choice costs {clean.lost * 100:.2f} clean test mAP"
            if clean.test is not None:
                text += f", and noisy validation ranks {clean.trials} trials as clean test does"
                text += f" with a correlation of {clean.test:.2f} (Spearman)"
            text += "."
        return text

    def table(self) -> Table:
        """All trials, best first."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True)
        table.title = Text(f"{self.method} on {self.scenario}")
        table.title_justify = table.caption_justify = "left"
        tested = any(clean is not None and clean.test is not None for clean in self.hindsight)
        seeds = self.seeds if len(self.seeds) > 1 else ()
        headings = [
            *(name.replace("_", "_\n") for name in self.space),  # six options in 100 columns
            "noisy\nmAP",
            *(f"seed\n{seed}" for seed in seeds),
            *(["clean\ntest"] if tested else []),
            "sec-\nonds",
        ]
        for heading in headings:
            style = "dim" if heading.startswith("clean") else ""
            table.add_column(heading, justify="right", no_wrap=True, style=style)
        table.add_column("", no_wrap=True)
        pairs = list(zip(self.trials, self.hindsight, strict=True))
        for trial, clean in sorted(pairs, key=lambda pair: -(pair[0].score or -1)):
            table.add_row(
                *(short(value) for value in trial.options.values()),
                _percent(trial.score),
                *(_percent(trial.noisy.get(seed)) for seed in seeds),
                *([_percent(clean.test if clean else None)] if tested else []),
                f"{trial.seconds:.0f}",
                "chosen" if trial is self.best else _remark(trial),
                style="bold" if trial is self.best else None,
            )
        notes = ["Clean test scores are hindsight: nothing was chosen by them."] if tested else []
        notes += [f"{trial.name}: {trial.reason}" for trial in self.trials if trial.reason]
        table.caption = Text("\n".join(notes)) if notes else None
        return table

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "scenario": self.scenario,
            "method": self.method,
            "sampler": self.sampler,
            "by": self.by,
            "share": self.share,
            "epochs": self.epochs,
            "seeds": list(self.seeds),
            "told": dict(self.told),
            "grid": {name: list(dimension.values) for name, dimension in self.space.items()},
            "best": None if self.best is None else _record(self.best),
            "flatness": None if self.flatness is None else asdict(self.flatness),
            "correlation_in_hindsight": asdict(self.correlation),
            "trials": [
                {**_record(trial), "hindsight": None if clean is None else asdict(clean)}
                for trial, clean in zip(self.trials, self.hindsight, strict=True)
            ],
        }

    def to_yaml(self, *, base: str | None = None) -> str:
        """A method file for a scenario, with what it was chosen by; `base` is what it stands on."""
        options = {"title": self.method, **self.options}
        assert self.best is not None
        assert self.best.score is not None
        states = ", ".join(
            f"{self.count(state)} {state}"
            for state in ("finished", "pruned", "failed")
            if self.count(state)
        )
        lines = (
            "# Chosen by the mAP on noisy validation labels; clean labels played no part.",
            f"# scenario: {self.scenario}",
            f"# training: {self.protocol}",
            f"# sampler:  {self.sampler}, {len(self.trials)} trials ({states})",
            f"# score:    {self.best.score * 100:.2f} noisy mAP",
        )
        settings = {"method": options} if base is None else {"base": base, "method": options}
        return "\n".join(lines) + "\n" + yaml.safe_dump(settings, sort_keys=False)

    def write(self, folder: Path) -> Path:
        """Leave the choice where `Scenario.with_options` finds it.

        In the folder of a scenario it is a config like the others there, fit for `adagc train`.
        """
        beside = folder / "scenario.yaml"
        text = self.to_yaml(base=beside.name if beside.exists() else None)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{slug(self.method)}.yaml"
        write_text(path, text)
        return path


def study_of(plan: Plan, points: Sequence[Mapping[str, Any]]) -> Study:
    """What the folders of these trials say."""
    trials = tuple(plan.read(point) for point in points)
    config = plan.scenario.config(plan.seeds[0])
    return Study(
        scenario=plan.scenario.name,
        method=plan.method.title,
        sampler=plan.sampler,
        by=plan.by,
        share=config.share,
        epochs=config.epochs,
        seeds=plan.seeds,
        told=plan.told,
        space=plan.space,
        trials=trials,
        hindsight=tuple(
            look_back(plan.jobs(trial.options), plan.by) if trial.state == "finished" else None
            for trial in trials
        ),
    )


def pooled_correlation(studies: Sequence[Study]) -> Correlation:
    """Over all trials of several methods: would noisy labels also choose among methods?"""
    if len({study.scenario for study in studies}) > 1:
        names = ", ".join(sorted({study.scenario for study in studies}))
        raise UsageError(f"scores of different scenarios cannot be ranked together: {names}")
    pairs = [
        (trial, clean)
        for study in studies
        for trial, clean in zip(study.trials, study.hindsight, strict=True)
        if clean is not None
    ]
    chosen = choose(trial for trial, _ in pairs)
    tested = [(trial.score, clean.test) for trial, clean in pairs if clean.test is not None]
    validated = [
        (trial.score, clean.validation) for trial, clean in pairs if clean.validation is not None
    ]
    own = next((clean.test for trial, clean in pairs if trial is chosen), None)
    return Correlation(
        trials=len(tested),
        test=spearman(tested),
        validation=spearman(validated),
        lost=None if own is None else max(value for _, value in tested) - own,
    )


def spearman(pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """Rank correlation; equal values share the mean of their ranks.

    None for fewer than three pairs, or where one side is the same throughout and ranks nothing.
    """
    if len(pairs) < _ENOUGH:
        return None
    x, y = (_ranks(np.array(side, float)) for side in zip(*pairs, strict=True))
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for the smallest; equal values get the mean of the ranks that they take up."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    means: NDArray[np.float64] = last - (size - 1) / 2
    return means[group]


def look_back(jobs: Sequence[Job], by: Choice) -> Hindsight:
    """Clean scores of the finished runs of a trial, as far as their folders hold them."""
    tests, validations = [], []
    for job in jobs:
        run = job.run
        tested = None if run.scores is None else run.scores.scores_of(NetworkRole.DEPLOYED, by)
        if tested is not None:
            tests.append(tested.mean_average_precision)
        history = run.history
        noisy = [noisy_map(line) for line in history]
        line = history[-1 if by == "last" else int(np.argmax(noisy))]
        validation = line.clean_of(NetworkRole.DEPLOYED)
        if validation is not None:
            validations.append(validation.mean_average_precision)
    return Hindsight(
        test=statistics.mean(tests) if len(tests) == len(jobs) else None,
        validation=statistics.mean(validations) if len(validations) == len(jobs) else None,
    )


def _record(trial: Trial) -> dict[str, Any]:
    noisy = {str(seed): score for seed, score in trial.noisy.items()}
    return {**asdict(trial), "noisy": noisy, "score": trial.score}


def _percent(score: float | None) -> str:
    return "–" if score is None else f"{score * 100:.2f}"


def _remark(trial: Trial) -> str:
    if trial.state == "pruned":
        return f"pruned at {trial.epochs}"
    return "" if trial.state == "finished" else trial.state

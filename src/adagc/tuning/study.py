"""The result of tuning a method, as sentences, a table, JSON and a YAML file of the method.

It also says whether noisy labels have chosen well. For this, scores on clean labels are read from
the run folders after the choice was made; the code that chooses never sees them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
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
from adagc.methods.told import TunedOn
from adagc.metrics import CRITERIA, Criterion, CriterionName
from adagc.tuning.ledger import Plan
from adagc.tuning.search import (
    Dimension,
    Flatness,
    Sampler,
    Trial,
    choose,
    flatness,
    short,
)
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from rich.table import Table

_ENOUGH = 3  # trials for a correlation; with two it is always 1 or -1


@dataclass(frozen=True)
class Hindsight:
    """mAP of a finished trial on clean labels, mean over seeds; never used to choose."""

    test: float | None  # on test images; None if not all seeds were tested
    validation: float | None  # on validation images; None if the runs had no oracle


@dataclass(frozen=True)
class Correlation:
    """Whether noisy validation labels rank trials as clean labels do; never used to choose."""

    trials: int  # number of trials that were tested on clean labels
    test: float | None  # Spearman's, of the criterion and clean test mAP; None: too few trials
    validation: float | None  # the same with clean validation mAP
    lost: float | None  # highest clean test mAP of all trials minus that of the chosen trial


@dataclass(frozen=True)
class Study:
    """The result of tuning one method in one scenario."""

    scenario: str
    method: str  # title
    sampler: Sampler
    by: Choice  # whether the last or the best epoch of a run is its score
    select: CriterionName  # the criterion that chooses epochs and options
    share: float  # share of the training images that was used
    epochs: int  # of every run
    seeds: tuple[int, ...]
    told: Mapping[str, Any]  # options that the scenario sets and that are not tuned
    tuned_on: TunedOn  # "clean" if these were chosen by clean labels
    space: Mapping[str, Dimension]  # the tuned options, by name
    trials: tuple[Trial, ...]
    hindsight: tuple[Hindsight | None, ...]  # one per trial; None if it is not finished

    @cached_property
    def best(self) -> Trial | None:
        """The chosen trial; None if no trial finished."""
        return choose(self.trials)

    @cached_property
    def flatness(self) -> Flatness | None:
        """How much the score depends on the choice; None if no trial finished."""
        return flatness(self.trials, self.space, self.sampler, self.select)

    @cached_property
    def correlation(self) -> Correlation:
        """Whether noisy labels have chosen well."""
        return pooled_correlation([self])

    @property
    def options(self) -> dict[str, Any]:
        """The chosen options, with those of the scenario; AdagcError if no trial finished."""
        if self.best is None:
            reasons = [trial.reason for trial in self.trials if trial.reason]
            why = f" ({reasons[0]})" if reasons else ""
            raise AdagcError(
                f"no trial of {self.method} finished{why}: correct the cause and tune again;"
                " epochs that were trained are kept"
            )
        return {**self.told, **self.best.options}

    @property
    def criterion(self) -> Criterion:
        """The criterion that chooses epochs and options, and how its values are printed."""
        return CRITERIA[self.select]

    @property
    def remarks(self) -> list[str]:
        """What the method says a reader of the scores must know: "3 of 9 trials: ..."."""
        counts = Counter(trial.remark for trial in self.trials if trial.remark)
        return [
            f"{count} of {len(self.trials)} trials: {remark}." for remark, count in counts.items()
        ]

    def count(self, state: str) -> int:
        """Number of trials in this state."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def protocol(self) -> str:
        """How the trials were trained, for example "50 % of the training images, ..., seed 0"."""
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
        flat, clean, criterion = self.flatness, self.correlation, self.criterion
        text = (
            f"{self.method} on {self.scenario}: {self.best.name} is the best of {tried} by"
            f" {criterion.title}, {criterion.shown(self.best.score)}. {flat.near} of {flat.trials}"
            f" finished trials are within {criterion.near * criterion.scale:g} of it, and the"
            f" median is {criterion.shown(flat.drop)} below it."
        )
        if len(flat.spans) > 1:
            most = max(flat.spans, key=lambda name: flat.spans[name])
            text += (
                f" The option that matters most is {most}: the best scores of its values differ by"
                f" {criterion.shown(flat.spans[most])}."
            )
        if clean.lost is not None:
            text += (
                " Compared with the trial that is best on clean test labels, the choice costs"
                f" {clean.lost * 100:.2f} clean test mAP."
            )
            if clean.test is not None:
                text += (
                    f" Over {clean.trials} trials, the rank correlation (Spearman) of"
                    f" {criterion.title} and clean test mAP is {clean.test:.2f}."
                )
        return " ".join([text, *self.remarks])

    def table(self) -> Table:
        """A table of all trials for the terminal, best first."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True)
        table.title = Text(f"{self.method} on {self.scenario}")
        table.title_justify = table.caption_justify = "left"
        tested = any(clean is not None and clean.test is not None for clean in self.hindsight)
        seeds = self.seeds if len(self.seeds) > 1 else ()
        headings = [
            # Broken at underscores, so that six options fit into 100 columns.
            *(name.replace("_", "_\n") for name in self.space),
            self.criterion.title.replace(" ", "\n").replace("-", "-\n"),
            *(f"seed\n{seed}" for seed in seeds),
            *(["clean\ntest"] if tested else []),
            "sec-\nonds",
        ]
        for heading in headings:
            style = "dim" if heading.startswith("clean") else ""
            table.add_column(heading, justify="right", no_wrap=True, style=style)
        table.add_column("", no_wrap=True)
        pairs = list(zip(self.trials, self.hindsight, strict=True))
        for trial, clean in sorted(pairs, key=lambda pair: _order(pair[0])):
            table.add_row(
                *(short(value) for value in trial.options.values()),
                self._shown(trial.score),
                *(self._shown(trial.noisy.get(seed)) for seed in seeds),
                *([_percent(clean.test if clean else None)] if tested else []),
                f"{trial.seconds:.0f}",
                "chosen" if trial is self.best else _remark(trial),
                style="bold" if trial is self.best else None,
            )
        notes = (
            ["Clean test scores are shown in hindsight; they were not used to choose."]
            if tested
            else []
        )
        notes += [f"{trial.name}: {trial.reason}" for trial in self.trials if trial.reason]
        notes += self.remarks
        table.caption = Text("\n".join(notes)) if notes else None
        return table

    def _shown(self, value: float | None) -> str:
        return "–" if value is None else self.criterion.shown(value)

    def to_dict(self) -> dict[str, Any]:
        """The study as a dictionary that can be written as JSON."""
        return {
            "scenario": self.scenario,
            "method": self.method,
            "sampler": self.sampler,
            "by": self.by,
            "select": self.select,
            "share": self.share,
            "epochs": self.epochs,
            "seeds": list(self.seeds),
            "told": dict(self.told),
            "grid": {name: list(dimension.values) for name, dimension in self.space.items()},
            "best": None if self.best is None else _record(self.best),
            "remarks": self.remarks,
            "flatness": None if self.flatness is None else asdict(self.flatness),
            "correlation_in_hindsight": asdict(self.correlation),
            "trials": [
                {**_record(trial), "hindsight": None if clean is None else asdict(clean)}
                for trial, clean in zip(self.trials, self.hindsight, strict=True)
            ],
        }

    def to_yaml(self, *, base: str | None = None) -> str:
        """The chosen options as a YAML file of the method, with comments on how they were chosen.

        Args:
            base: Name of another YAML file that the file extends, if any.
        """
        options = {"title": self.method, "tuned_on": self.tuned_on, **self.options}
        assert self.best is not None
        assert self.best.score is not None
        states = ", ".join(
            f"{self.count(state)} {state}"
            for state in ("finished", "pruned", "failed")
            if self.count(state)
        )
        clean = "clean labels played no part"
        if self.tuned_on == "clean":
            clean = f"{' and '.join(self.told)} by clean labels"
        lines = (
            f"# Chosen by noisy validation labels ({self.criterion.title}); {clean}.",
            f"# scenario: {self.scenario}",
            f"# training: {self.protocol}",
            f"# sampler:  {self.sampler}, {len(self.trials)} trials ({states})",
            f"# score:    {self.criterion.shown(self.best.score)}",
            *(f"# remark:   {remark}" for remark in self.remarks),
        )
        settings = {"method": options} if base is None else {"base": base, "method": options}
        return "\n".join(lines) + "\n" + yaml.safe_dump(settings, sort_keys=False)

    def write(self, folder: Path) -> Path:
        """Write the chosen options to <folder>/<method>.yaml, for `Scenario.with_options`.

        If the folder contains a scenario.yaml, the file extends it and can be given to
        `adagc train --config`.
        """
        scenario = folder / "scenario.yaml"
        text = self.to_yaml(base=scenario.name if scenario.exists() else None)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{slug(self.method)}.yaml"
        write_text(path, text)
        return path


def study_of(plan: Plan, points: Sequence[Mapping[str, Any]]) -> Study:
    """The study of the trials with these options, read from their run folders."""
    trials = tuple(plan.read(point) for point in points)
    config = plan.scenario.config(plan.seeds[0])
    return Study(
        scenario=plan.scenario.name,
        method=plan.method.title,
        sampler=plan.sampler,
        by=plan.by,
        select=plan.select,
        share=config.share,
        epochs=config.epochs,
        seeds=plan.seeds,
        told=plan.told,
        tuned_on=plan.tuned_on,
        space=plan.space,
        trials=trials,
        hindsight=tuple(
            look_back(plan.jobs(trial.options), plan.by, plan.select)
            if trial.state == "finished"
            else None
            for trial in trials
        ),
    )


def pooled_correlation(studies: Sequence[Study]) -> Correlation:
    """The correlation over all trials of several methods tuned in the same scenario.

    It says whether noisy labels would also choose well among methods.
    """
    for what in ("scenario", "select"):
        names = sorted({str(getattr(study, what)) for study in studies})
        if len(names) > 1:
            raise UsageError(
                f"scores of different studies cannot be ranked together: {', '.join(names)}"
            )
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
    chosen_test = next((clean.test for trial, clean in pairs if trial is chosen), None)
    return Correlation(
        trials=len(tested),
        test=spearman(tested),
        validation=spearman(validated),
        lost=None if chosen_test is None else max(value for _, value in tested) - chosen_test,
    )


def spearman(pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """Spearman's rank correlation; equal values share the mean of their ranks.

    None for fewer than three pairs, or if all values of one side are equal.
    """
    if len(pairs) < _ENOUGH:
        return None
    x, y = (_ranks(np.array(side, float)) for side in zip(*pairs, strict=True))
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 for the smallest value; equal values get the mean of their ranks."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    means: NDArray[np.float64] = last - (size - 1) / 2
    return means[group]


def look_back(jobs: Sequence[Job], by: Choice, select: CriterionName) -> Hindsight:
    """Clean scores of the finished runs of a trial, as far as their folders contain them."""
    tests, validations = [], []
    for job in jobs:
        run = job.run
        tested = None if run.scores is None else run.scores.scores_of(NetworkRole.DEPLOYED, by)
        if tested is not None:
            tests.append(tested.mean_average_precision)
        history = run.history
        noisy = [line.criterion(select) for line in history]
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


def _order(trial: Trial) -> float:
    """Sorts trials with the best score first and those without one last."""
    return math.inf if trial.score is None else -trial.score


def _percent(score: float | None) -> str:
    return "–" if score is None else f"{score * 100:.2f}"


def _remark(trial: Trial) -> str:
    if trial.state == "pruned":
        return f"pruned at {trial.epochs}"
    return "" if trial.state == "finished" else trial.state

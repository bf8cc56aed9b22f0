"""What templates of docs/results can say: readers of the records in docs/results/data."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from adagc.bench.packs import unpack
from adagc.bench.results import Result
from adagc.compare import render
from adagc.compare.outputs import Written, make_tables
from adagc.compare.words import signed
from adagc.methods import outlines
from adagc.metrics import METRICS
from adagc.paper import values as printed_values
from adagc.paper.theory.measure import Theory, measure
from adagc.training.views import VIEWS, View

sys.path.insert(0, str(Path(__file__).parent))
import regret
import selection
from words import quoted, spread, two

DATA = Path(__file__).parents[1] / "docs" / "results" / "data"
HEADINGS = {metric.heading: key for key, metric in METRICS.items()}


class Runs:
    """Published runs of one pack, and what is the same for benchmarks and ablations.

    Args:
        path: Folder of the pack in docs/results/data.
    """

    views: ClassVar[Mapping[str, View]] = VIEWS  # by the name that templates give them
    usual: ClassVar[str] = "averaged-last"  # the view that is meant if none is named

    def __init__(self, path: str) -> None:
        self.scenario, self.results = unpack(DATA / path)

    def per_seed(
        self, label: str, metric: str = "mAP", view: str | None = None
    ) -> dict[int, float]:
        """The scores of all runs of a row as the table shows them, by seed."""
        key, chosen = HEADINGS[metric], self.views[view or self.usual]
        return {
            run.seed: METRICS[key].scale * scores.summary()[key]
            for run in self.results.of(label)
            if (scores := chosen.scores(run.networks)) is not None
        }

    def mean(self, label: str, metric: str = "mAP", view: str | None = None) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.per_seed(label, metric, view).values())

    def triggered(self, label: str = "AdaGC") -> list[tuple[int, int, bool]]:
        """Seed, epoch after which calibration began, and whether it was forced, of AdaGC's runs."""
        return [
            (run.seed, status["triggered_after"], "by force" in run.remark)
            for run in self.results.of(label)
            if "triggered_after" in (status := run.run.history[-1].status)
        ]

    @property
    def made(self) -> str:
        """Where and with what the runs were made, and what they cost, in a sentence or two."""
        return made(self.results.finished)

    @property
    def seeds(self) -> str:
        """The seeds, such as "10 to 14"."""
        numbers = sorted({run.seed for run in self.results.finished})
        return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


class Pack(Runs):
    """The published runs of one scenario, which `adagc bench --pack` wrote."""

    @cached_property
    def _written(self) -> Written:
        paper = self.scenario.paper
        reference = None if paper is None else printed_values.values(paper)
        judge = VIEWS["averaged-last"]
        return make_tables(self.scenario, self.results, DATA, reference, judge=judge)

    def table(self, view: str = "averaged-last") -> str:
        """The table of a view as `adagc tables` writes it, with its notes."""
        number = [verdict.view.name for verdict in self._written.verdicts].index(view)
        return render.markdown(self._written.tables[number]).strip()

    def verdict(self, view: str = "averaged-last") -> str:
        """The recommendation in this view, as a quotation."""
        (found,) = (one for one in self._written.verdicts if one.view.name == view)
        return quoted(found.sentence)

    def gain(self, label: str, baseline: str, view: str = "averaged-last") -> str:
        """What a row gains over a baseline in mAP, with its 95 % interval: "+1.1 ± 1.5"."""
        (found,) = (one for one in self._written.verdicts if one.view.name == view)
        return signed(found.gains[label][baseline])

    def closed(self, label: str, view: str = "averaged-last") -> float:
        """Share of the gap from AN to GT that a row closes in mAP, in per cent."""
        own, low, high = (self.mean(one, view=view) for one in (label, "AN", "GT w/ BCE"))
        return 100 * (own - low) / (high - low)

    def cross(self, one: tuple[str, str], other: tuple[str, str]) -> tuple[float, float]:
        """Mean difference in mAP of two rows, each in a view of its own, and its standard error.

        The error is that of the mean over seeds: the choice of test images is not in it.
        """
        first, second = (self.per_seed(label, view=view) for label, view in (one, other))
        gaps = [first[seed] - second[seed] for seed in first]
        return statistics.fmean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5

    def untold(self, view: str = "averaged-last") -> list[tuple[str, float]]:
        """Rows that get nothing but observed labels, best mAP first."""
        rows = [
            label
            for label in self.results.labels
            if not self.results.given(label) & {"truth", "priors"}
        ]
        return sorted(((row, self.mean(row, view=view)) for row in rows), key=lambda r: -r[1])

    def clean(self, label: str, epoch: int) -> float:
        """Mean over seeds of the average's clean validation mAP after an epoch, in per cent."""
        lines = [run.run.history[epoch - 1] for run in self.results.of(label)]
        return 100 * statistics.fmean(
            line.oracle.validation[name].mean_average_precision
            for line in lines
            if line.oracle is not None and (name := VIEWS["averaged-last"].of(line.roles))
        )

    def theory(self, label: str, seed: int, network: str | None = None) -> Theory:
        """The paper's propositions on one run."""
        (run,) = (run.run for run in self.results.of(label) if run.seed == seed)
        return measure(run, network)

    def peaks(self, label: str, network: str = "averaged") -> list[int]:
        """The epochs after which a network has its highest clean validation mAP, by seed."""
        return [1 + run.index(max(run)) for run in self._validation(label, network)]

    def fallen(self, label: str, epoch: int, network: str = "averaged") -> float:
        """Points of clean validation mAP since the highest until then, mean over seeds."""
        runs = self._validation(label, network)
        return statistics.fmean(max(run[:epoch]) - run[epoch - 1] for run in runs)

    def _validation(self, label: str, network: str) -> list[list[float]]:
        """Clean validation mAP of a network after every epoch, by seed."""
        histories = [run.run.history for run in self.results.of(label)]
        return [
            [
                100 * line.oracle.validation[network].mean_average_precision
                for line in history
                if line.oracle is not None
            ]
            for history in histories
        ]


def made(runs: Sequence[Result]) -> str:
    """Number of runs, their cost and the machine, from what the runs recorded."""
    about = [run.run.read_json("environment.json") for run in runs]
    hours = sum(run.cpu_seconds or run.seconds for run in runs) / 3600
    threads, processors, torch, commits = (
        ", ".join(sorted({str(one) for one in values}))
        for values in (
            [one["threads"] for one in about],
            [one["processor"] for one in about],
            [one["packages"]["torch"] for one in about],
            [one["git"] for one in about],
        )
    )
    many = "" if threads == "1" else "s"
    return (
        f"{len(runs)} runs, {hours:.1f} CPU hours, {threads} thread{many} each on {processors},"
        f" torch {torch}, commit {commits}."
    )


class Lines:
    """Records of an earlier form: scores, options and machine of every run, without histories."""

    def __init__(self, name: str) -> None:
        text = (DATA / f"{name}.jsonl").read_text(encoding="utf-8")
        self.runs = [json.loads(line) for line in text.splitlines()]

    def of(
        self, method: str, network: str, epoch: str, seed: int | None = None
    ) -> list[Mapping[str, float]]:
        """The scores of all runs of a method that have this network, or of those with a seed."""
        own = [
            run
            for run in self.runs
            if run["method"] == method and (seed is None or run["seed"] == seed)
        ]
        return [run["networks"][network][epoch] for run in own if network in run["networks"]]

    def mean(
        self, method: str, metric: str, network: str, epoch: str = "last", seed: int | None = None
    ) -> float:
        """Mean over seeds, or the value of one seed."""
        key = HEADINGS[metric]
        scale = METRICS[key].scale
        return statistics.fmean(scale * one[key] for one in self.of(method, network, epoch, seed))

    def closed(self, method: str, network: str, seed: int | None = None) -> float:
        """Share of the gap from AN to GT that a method closes in mAP, in per cent."""
        own, low, high = (
            self.mean(one, "mAP", network, seed=seed) for one in (method, "AN", "GT w/ BCE")
        )
        return 100 * (own - low) / (high - low)

    @property
    def hours(self) -> float:
        """Time on the clock of all runs together."""
        return sum(float(run["seconds"]) for run in self.runs) / 3600

    def triggered(self, method: str) -> list[int]:
        """Epochs after which the second stage began, by seed."""
        return [run["status"]["triggered_after"] for run in self.runs if run["method"] == method]

    def table(self) -> str:
        """Mean and unbiased deviation over seeds of every method, network and choice of epoch."""
        metrics = [METRICS[HEADINGS[name]] for name in ("mAP", "mF1", "mPrec", "mRec", "OA")]
        known = {run["method"] for run in self.runs}
        lines = [
            f"| method | network | epoch | seeds | {' | '.join(m.heading for m in metrics)} |",
            f"|---|---|---|---|{'---:|' * len(metrics)}",
        ]
        for title in (title for title in outlines() if title in known):
            names = {
                name for run in self.runs if run["method"] == title for name in run["networks"]
            }
            for network in sorted(names, key=lambda name: (name != "network", name)):
                for epoch in ("last", "best"):
                    runs = self.of(title, network, epoch)
                    cells = [
                        spread([m.scale * run[m.key] for run in runs], m.decimals) for m in metrics
                    ]
                    about = (title, network, epoch, str(len(runs)))
                    lines.append(f"| {' | '.join((*about, *cells))} |")
        return "\n".join(lines)


class Tuning:
    """What `adagc tune SCENARIO --json` printed."""

    def __init__(self, name: str) -> None:
        record = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        self.studies = {study["method"]: study for study in record["studies"]}
        self.correlation: Mapping[str, float] = record["correlation"]  # over all methods

    @property
    def trials(self) -> int:
        """Number of trials of all methods."""
        return sum(len(study["trials"]) for study in self.studies.values())

    def of(self, title: str) -> float:
        """Spearman's correlation of the criterion and clean test mAP over a method's trials."""
        return float(self.studies[title]["correlation_in_hindsight"]["test"])

    def table(self) -> str:
        """What was chosen for every method, and how good that was in hindsight."""
        lines = [
            "| method | trials | chosen | within 0.5 of it | rank correlation | clean mAP lost |",
            "|---|---:|---|---:|---:|---:|",
        ]
        for title, study in self.studies.items():
            chosen = ", ".join(
                f"{name.replace('_', ' ')} {value:g}" if type(value) is float else f"{name} {value}"
                for name, value in study["best"]["options"].items()
            )
            hindsight = study["correlation_in_hindsight"]
            cells = (
                title,
                str(len(study["trials"])),
                chosen,
                str(study["flatness"]["near"]),
                two(hindsight["test"]),
                two(100 * hindsight["lost"]),
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    @property
    def lost(self) -> float:
        """Mean over methods of the clean mAP that the choice costs, in points."""
        return statistics.fmean(
            100 * study["correlation_in_hindsight"]["lost"] for study in self.studies.values()
        )


class Printed:
    """What benchmarks printed: benchmarks/record.py."""

    def __init__(self) -> None:
        self.found = json.loads((DATA / "speed.json").read_text(encoding="utf-8"))

    def has(self, name: str) -> bool:
        """Whether this benchmark was recorded."""
        return name in self.found

    def block(self, name: str) -> str:
        """The command and its printout, as code."""
        one = self.found[name]
        lines = [f"$ {one['command']}", *(line.rstrip() for line in one["printed"])]
        return "\n".join(["```", *lines, "```"])

    def met(self, name: str) -> str:
        """Whether it met its limits."""
        return "yes" if self.found[name]["met"] else "no, see below"

    @property
    def made(self) -> str:
        """Where they ran."""
        machines = [one["machine"] for one in self.found.values()]
        processors, torch, commits = (
            ", ".join(sorted({str(value) for value in values}))
            for values in (
                [one["processor"] for one in machines],
                [one["packages"]["torch"] for one in machines],
                [one["git"] for one in machines],
            )
        )
        return f"Two cores of {processors}, torch {torch}, commit {commits}."


class Selection:
    """What choosing by noisy validation labels costs: experiments/selection.py."""

    def __init__(self) -> None:
        self.lines = selection.recorded(DATA)
        self.trained = [line for line in self.lines if line["kind"] != "bench"]
        self.benched = [line for line in self.lines if line["kind"] == "bench"]
        self.found = regret.regrets(self.lines)

    def has(self, data: str) -> bool:
        """Whether anything was recorded on this data."""
        return any(line["data"] == data for line in self.lines)

    def table(self) -> str:
        """Mean and worst regret of every criterion, by data and question."""
        return regret.table(self.found).strip()

    def by_case(self, data: str, question: str) -> str:
        """Mean regret over seeds of every case."""
        return regret.by_case(self.found, data, question).strip()

    def mean(self, data: str, question: str, by: str) -> float:
        """Mean regret of a criterion in points of mAP."""
        return statistics.fmean(
            r.cost for r in self.found if (r.data, r.question, r.by) == (data, question, by)
        )

    def chosen(self, data: str, network: str, by: str) -> float:
        """Mean epoch that a criterion chooses in whole runs; by "test" the best in hindsight."""
        runs = [line for line in self.lines if (line["data"], line["kind"]) == (data, "run")]
        values = [line["networks"][network][by] for line in runs]
        return statistics.fmean(1 + one.index(max(one)) for one in values)

    def of_network(self, data: str, network: str, by: str) -> float:
        """Mean regret of choosing the epoch, for the trained or for the averaged network."""
        return statistics.fmean(
            r.cost
            for r in self.found
            if (r.data, r.question, r.by) == (data, "epoch", by) and r.case.endswith(network)
        )

    def differences(self, criterion: str, other: str) -> str:
        """How much less one criterion loses than another, by data and question, as a list."""
        text = regret.differences(self.found, criterion, other)
        return "\n".join(f"- {line}" for line in text.splitlines())

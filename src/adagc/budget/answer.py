"""The answer: finished runs to curves, a table, and a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adagc.atomic import write_text
from adagc.bench.jobs import Job
from adagc.bench.results import Results, collect
from adagc.budget.curves import Crossing, Curve, Estimate, Row, crossings, rows
from adagc.budget.plan import Plan
from adagc.errors import AdagcError
from adagc.training.views import View

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = ("one label on", "mAP", "all labels of", "mAP", "gain", "as good as all labels of")
_NOTE = (
    "Prices are equal. Intervals cover seeds (which images and labels, initial weights), not"
    " the choice of test images. The labels of validation images are the same for all and not"
    " counted."
)


@dataclass(frozen=True)
class Answer:
    """Both curves, compared at the same price."""

    plan: Plan
    view: View
    seeds: tuple[int, ...]
    single: Curve
    full: Curve
    results: Results

    @property
    def rows(self) -> list[Row]:
        """Both ways to label, price by price."""
        return rows(self.single, self.full, self.plan.cost)

    @property
    def crossings(self) -> list[Crossing]:
        """Prices at which the better way changes."""
        return crossings(self.single, self.full, self.plan.cost)

    @property
    def sentence(self) -> str:
        """Which way to label is better, and up to what price."""
        return " ".join(filter(None, (self._verdict, self._worth)))

    @property
    def _verdict(self) -> str:
        compared, met = self.rows, self.crossings
        if not compared:
            return "No price was tried with both ways to label."
        first, last = compared[0], compared[-1]
        span = f"from {first.images:,} to {last.images:,} single labels"
        if len(met) == 1:
            where = met[0]
            below, above = "all labels of fewer images", "one label on more images"
            if not where.single_above:
                below, above = above, below
            range_ = "" if len(self.seeds) < 2 else f" ({where.low:,.0f} to {where.high:,.0f})"
            return (
                f"The curves cross at about {where.images:,.0f} single labels{range_}: below,"
                f" {below} is better, above, {above}."
            )
        if met:
            told = ", ".join(f"{where.images:,.0f}" for where in met)
            return f"The curves cross several times (at {told} single labels): it is a tie {span}."
        better = "one label on more images" if last.gain.mean >= 0 else "all labels of fewer images"
        by = f"{_shown(Estimate(abs(last.gain.mean), last.gain.half))} mAP at {last.images:,}"
        if not any(row.gain.sure for row in compared):
            return (
                f"The two ways to label cannot be told apart {span}: at {last.images:,} the mean of"
                f" {better} is higher by {by.partition(' mAP')[0]} mAP."
            )
        return f"The curves do not cross {span}: {better} is better (by {by})."

    @property
    def _worth(self) -> str:
        """What the single labels of all images are worth; empty if that is outside the curve."""
        last = self.rows[-1] if self.rows else None
        if last is None:
            return ""
        if last.worth is None:
            top = self.full.values.mean(axis=0).max()
            if last.single.mean > top:
                return "One label on all images is better than all labels of all images."
            return ""
        return (
            f"By the means, one label on {last.images:,} images is as good as all labels of about"
            f" {last.worth:,.0f}: all labels pay while those of an image cost less than"
            f" {last.images / last.worth:.1f} single labels."
        )

    @property
    def remarks(self) -> list[str]:
        """What a reader must know of the table."""
        plan = self.plan
        price = f"All labels of an image cost as much as {plan.cost:.3g} single labels"
        if plan.measured:
            price += ", as many as it has on average (--cost names another price)"
        alone = (
            ["One seed tells no interval: add more with --seeds."] if len(self.seeds) < 2 else []
        )
        return [f"{price}.", f"{_NOTE} {self.view.networks.capitalize()}.", *alone]

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, as text."""
        return [
            (
                f"{row.images:,}",
                _shown(row.single),
                f"{row.full_images:,.0f}",
                _shown(row.full),
                f"{'+' * (row.gain.mean > 0)}{_shown(row.gain)}",
                "" if row.worth is None else f"{row.worth:,.0f}",
            )
            for row in self.rows
        ]

    def table(self) -> Table:
        """The table for the terminal."""
        from rich.table import Table

        table = Table(header_style="bold", title=f"{self.plan.scenario.title}: {self.plan.method}")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for cells in self.cells():
            table.add_row(*cells)
        return table

    def markdown(self) -> str:
        """Table, sentence and remarks as Markdown."""
        lines = [HEADINGS, ("---:",) * len(HEADINGS), *self.cells()]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        remarks = "\n\n".join(self.remarks)
        return f"# {self.plan.scenario.title}\n\n{table}\n\n{self.sentence}\n\n{remarks}\n"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "scenario": self.plan.scenario.name,
            "method": self.plan.method,
            "cost": self.plan.cost,
            "cost_is_measured": self.plan.measured,
            "labels_per_image": self.plan.cardinality,
            "view": self.view.name,
            "seeds": list(self.seeds),
            "rows": [row.to_dict() for row in self.rows],
            "crossings": [where.to_dict() for where in self.crossings],
            "curves": {
                name: {"images": curve.images.tolist(), "mAP": curve.values.tolist()}
                for name, curve in (("one label", self.single), ("all labels", self.full))
            },
            "sentence": self.sentence,
            "remarks": self.remarks,
        }

    def write(self, folder: Path) -> None:
        """Write budget.json, budget.md, and the figure as budget.pdf and budget.png."""
        from adagc.budget.figure import draw
        from adagc.paper.canvas import save

        save(draw(self), folder / "budget")
        write_text(folder / "budget.md", self.markdown())
        write_text(folder / "budget.json", json.dumps(self.to_dict(), indent=1) + "\n")


def answer(plan: Plan, view: View) -> Answer:
    """Read the finished runs; AdagcError if a curve has fewer than two points.

    Only seeds that are finished on a whole curve count, so that all points mean the same.
    """
    results = collect(plan.scenario.name, plan.jobs)
    known: dict[str, tuple[float, float]] = {}  # folder -> images, mAP in per cent
    for result in results.finished:
        scores, labels = view.scores(result.networks), result.run.labels
        if scores is not None and labels is not None:
            score = 100 * scores.mean_average_precision
            known[str(result.run.folder)] = (float(labels.images.train), score)
    every = [jobs for part in (plan.single, plan.full) for jobs in part.values()]
    done = [{job.seed for job in jobs if job.folder in known} for jobs in every]
    seeds = tuple(sorted(set.intersection(*done))) if done else ()
    if not seeds:
        first = next((f"{label}: {why[0]}" for label, why in results.failed.items()), "")
        raise AdagcError(
            f"no seed of {plan.scenario.name} is finished on all shares of the images"
            + (f" ({first})" if first else ": run the same command again")
        )
    single, full = (_curve(part, known, seeds) for part in (plan.single, plan.full))
    return Answer(plan, view, seeds, single, full, results)


def _curve(
    part: dict[float, list[Job]], known: dict[str, tuple[float, float]], seeds: tuple[int, ...]
) -> Curve:
    found = [[known[job.folder] for job in jobs if job.seed in seeds] for jobs in part.values()]
    images = np.array([np.mean([count for count, _ in runs]) for runs in found])
    values = np.array([[score for _, score in runs] for runs in found]).T
    return Curve(images, values)


def _shown(estimate: Estimate) -> str:
    half = "" if estimate.half is None else f" ± {estimate.half:.1f}"
    return f"{estimate.mean:.1f}{half}"

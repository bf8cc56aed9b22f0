"""Ablations as templates of docs/results show them: what `adagc ablate --pack` wrote."""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from adagc.bench.results import Result
from adagc.compare import render, tables
from adagc.paper.ablate import studies
from adagc.training.records import PseudoLabelQuality
from adagc.training.views import View
from adagc.types import NetworkRole

sys.path.insert(0, str(Path(__file__).parent))
from records import DATA, Runs, made
from words import spread

# The paper's ablations: mAP and mF1 of the teacher on reBEN, in one run of 70 epochs.
PRINTED = DATA / "ablations" / "paper.csv"
PRINTED_EPOCHS = 70


class Study(Runs):
    """The runs of one ablation. Sentences are about the teacher, which the paper shows.

    Args:
        scenario: Name of the folder in docs/results/data/ablations.
        name: Name of the study.
    """

    views: ClassVar = {
        "student": View(NetworkRole.DEPLOYED, "last"),
        "teacher": View(NetworkRole.TEACHER, "last"),
    }
    usual: ClassVar = "teacher"

    def __init__(self, scenario: str, name: str) -> None:
        super().__init__(f"ablations/{scenario}/{name}")
        self.name = name

    @property
    def variants(self) -> tuple[str, ...]:
        """The rows of its tables."""
        return self.results.labels

    def means(self, metric: str = "mAP", view: str | None = None) -> list[float]:
        """Mean over seeds of every variant."""
        return [self.mean(label, metric, view) for label in self.variants]

    def gaps(
        self, label: str, other: str, metric: str = "mAP", view: str | None = None
    ) -> list[float]:
        """Points by which one variant exceeds another, by seed."""
        first, second = (self.per_seed(one, metric, view) for one in (label, other))
        return [first[seed] - second[seed] for seed in first]

    def gap(self, label: str, other: str, metric: str = "mAP", view: str | None = None) -> float:
        """Their mean over seeds."""
        return statistics.fmean(self.gaps(label, other, metric, view))

    def restored(self, label: str) -> list[int]:
        """The epochs whose weights calibration began with, by seed."""
        return [run.run.history[-1].status["best_epoch"] for run in self.results.of(label)]

    def printed(self, label: str, metric: str = "mAP") -> str:
        """What the paper prints for a variant; empty if it has no such study on such labels.

        Its epochs 10, 20 and 30 of 70 are other epochs of a run of another length.
        """
        ours = studies(int(self.scenario.settings["epochs"]))[self.name].variants
        theirs = studies(PRINTED_EPOCHS)[self.name].variants
        as_printed = dict(zip(ours, theirs, strict=True))[label]
        return _printed().get((self.scenario.paper or "", self.name, as_printed, metric), "")

    def printed_gap(self, label: str, other: str, metric: str = "mAP") -> float:
        """Points by which one variant exceeds another in the paper."""
        return float(self.printed(label, metric)) - float(self.printed(other, metric))

    # -- pseudo-labels after the last epoch, on training images ------------------------------------

    def added(self, label: str) -> float:
        """Labels that a variant has added to an image, mean over images and seeds."""
        return statistics.fmean(one.added_per_image for one in self._at(label))

    def right(self, label: str) -> float:
        """Share of them that are true in per cent, mean over seeds."""
        return statistics.fmean(100 * one.precision for one in self._at(label))

    def pseudo_map(self, label: str, epoch: int | None = None) -> float:
        """Their mAP on clean labels after an epoch (by default the last), mean over seeds."""
        return statistics.fmean(100 * one.mean_average_precision for one in self._at(label, epoch))

    def pseudo_peak(self, label: str) -> float:
        """The highest such mean of all epochs."""
        epochs = int(self.scenario.settings["epochs"])
        return max(self.pseudo_map(label, epoch) for epoch in range(1, epochs + 1))

    @property
    def missing(self) -> float:
        """Labels of an image that were not observed, mean over training images and seeds."""
        found = {run.seed: _missing(run) for run in self.results.finished}
        return statistics.fmean(found.values())

    def _at(self, label: str, epoch: int | None = None) -> list[PseudoLabelQuality]:
        lines = [
            run.run.history[-1 if epoch is None else epoch - 1] for run in self.results.of(label)
        ]
        records = [line.oracle.pseudo_labels for line in lines if line.oracle is not None]
        return [one for one in records if one is not None]

    # -- tables ----------------------------------------------------------------------------------

    def table(self) -> str:
        """All metrics: the student of every variant, then the teacher of the same runs."""
        both = [tables.build(self.results, view=view) for view in self.views.values()]
        rows = tuple(row for one in both for row in one.rows)
        joined = replace(both[0], groups=(tables.Group("", rows),), notes=())
        _, _, table = render.markdown(joined).partition("\n\n")
        return table.strip()

    def beside(self, other: Study) -> str:
        """Markdown: mAP / mF1 of student, teacher and paper, two kinds of labels side by side."""
        return _piped(
            ("variant", *self._headings(), *other._headings()),
            ((label, *self._cells(label), *other._cells(label)) for label in self.variants),
        )

    def _headings(self) -> tuple[str, str, str]:
        return f"{self.scenario.settings['scheme']}: student", "teacher", "paper"

    def _cells(self, label: str) -> tuple[str, str, str]:
        student, teacher = (self.scores(label, view) for view in self.views)
        return student, teacher, " / ".join(self.printed(label, one) for one in ("mAP", "mF1"))

    def scores(self, label: str, view: str = "teacher") -> str:
        """Mean and unbiased deviation of mAP / mF1: "52.2 (2.4) / 36.5 (2.1)"."""
        values = (self.per_seed(label, metric, view).values() for metric in ("mAP", "mF1"))
        return " / ".join(spread(list(one), decimals=1) for one in values)


def made_together(*several: Study) -> str:
    """What the runs of several studies cost; a run that they share counts once."""
    runs = [run for study in several for run in study.results.finished]
    return made(list({run.run.files.read("history.jsonl"): run for run in runs}.values()))


@cache
def _printed() -> dict[tuple[str, str, str, str], str]:
    with PRINTED.open(encoding="utf-8", newline="") as file:
        return {
            (line["scenario"], line["study"], line["variant"], metric): line[metric]
            for line in csv.DictReader(file)
            for metric in ("mAP", "mF1")
        }


def _missing(run: Result) -> float:
    """Labels of a training image that were not observed, mean over images."""
    labels = run.run.labels
    assert labels is not None
    assert labels.flip_rates is not None
    return float(labels.flip_rates.micro * labels.flip_rates.support.sum() / labels.images.train)


def _piped(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A pipe table."""
    first = list(headings)
    lines = [first, ["---"] * len(first), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

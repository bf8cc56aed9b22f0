"""How figures read results, and the error that is raised if the results they need are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adagc.errors import AdagcError

if TYPE_CHECKING:
    from adagc.bench.results import Result, Results
    from adagc.training.views import View

# Methods with a special part in figures: lower and upper end of the scale, and the paper's own.
FLOOR, CEILING, OURS = "AN", "GT w/ BCE", "AdaGC"


class NothingToDrawError(AdagcError):
    """The results lack something that a figure needs; the message names the command to run."""


def accuracies(results: Results, label: str, view: View) -> dict[int, float]:
    """Test mAP of a row in per cent, by seed."""
    found = {}
    for result in results.of(label):
        scores = view.scores(result.networks)
        if scores is not None and math.isfinite(scores.mean_average_precision):
            found[result.seed] = 100 * scores.mean_average_precision
    return found


def methods(results: Results) -> list[str]:
    """Labels of the rows that are methods of the scenario, not variants of an ablation."""
    return [label for label in results.labels if label == results.method(label)]


def marked(several: Sequence[Results]) -> dict[str, str]:
    """The title of every method with the mark of its footnote, as in tables.

    A method is marked if it has a mark in any of these results.
    """
    from adagc.compare.tables import footnote

    marks: dict[str, str] = {}
    for results in several:
        for label in methods(results):
            marks[label] = footnote(results.given(label)) or marks.get(label, "")
    return {label: label + mark for label, mark in marks.items()}


def footnotes(names: Iterable[str]) -> str:
    """The footnotes of these marked names in one line; empty if none has a mark."""
    from adagc.compare.tables import CLEAN, PRIORS
    from adagc.methods.told import ESTIMATED

    meaning = {
        CLEAN: "trains with clean labels",
        PRIORS: "is told label frequencies",
        ESTIMATED: "estimates label frequencies",
    }
    used = {name[-1] for name in names}
    return ", ".join(f"{mark} {text}" for mark, text in meaning.items() if mark in used)


def runs_of(results: Results, title: str) -> list[Result]:
    """Finished runs of a method: those of the row with its title, or else of its first row."""
    own = [label for label in results.labels if results.method(label) == title]
    label = title if title in own else next(iter(own), None)
    return [] if label is None else results.of(label)


def once(several: Sequence[Results], title: str) -> dict[str, list[Result]]:
    """Finished runs of a method by scenario; the first results that have any are used."""
    scenarios: dict[str, list[Result]] = {}
    for results in several:
        runs = runs_of(results, title)
        if runs:
            scenarios.setdefault(results.scenario, runs)
    return scenarios

"""What figures read from results, and how they say that there is nothing to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adagc.errors import AdagcError
from adagc.types import NetworkRole, Scores

if TYPE_CHECKING:
    from adagc.bench.results import Choice, Result, Results

FLOOR, CEILING, OURS = "AN", "GT w/ BCE", "AdaGC"


class NothingToDrawError(AdagcError):
    """The results do not hold what a figure shows; the message says what would."""


@dataclass(frozen=True)
class Reading:
    """Which network of a run is judged on the test images, and at which epoch: as in tables."""

    role: NetworkRole = NetworkRole.DEPLOYED
    choice: Choice = "last"

    def scores(self, result: Result) -> Scores | None:
        """Of one run."""
        from adagc.compare.tables import network_of

        name = network_of(result, self.role)
        return None if name is None else result.scores(name, self.choice)

    def accuracies(self, results: Results, label: str) -> dict[int, float]:
        """Test mAP of a row in per cent, by seed."""
        found = {}
        for result in results.of(label):
            scores = self.scores(result)
            if scores is not None and math.isfinite(scores.mean_average_precision):
                found[result.seed] = 100 * scores.mean_average_precision
        return found


def methods(results: Results) -> list[str]:
    """Rows that are methods as the scenario tells them to be, not variants of an ablation."""
    return [label for label in results.labels if label == results.method(label)]


def needs(title: str) -> frozenset[str]:
    """What a method is told besides observed labels."""
    from adagc.methods import outline

    return outline(title).needs


def marked(title: str) -> str:
    """A method's name with the footnote that it has in tables."""
    from adagc.compare.tables import CLEAN, PRIORS

    told = needs(title)
    return title + (CLEAN if "truth" in told else PRIORS if "priors" in told else "")


def footnotes(titles: Iterable[str]) -> str:
    """What the marks of these methods mean, in a few words."""
    from adagc.compare.tables import CLEAN, PRIORS

    meaning = {CLEAN: "trains with clean labels", PRIORS: "is told label frequencies"}
    used = {marked(title)[-1] for title in titles}
    return ", ".join(f"{mark} {text}" for mark, text in meaning.items() if mark in used)


def runs_of(results: Results, title: str) -> list[Result]:
    """Finished runs of a method: of the row with its title, or else of its first row."""
    own = [label for label in results.labels if results.method(label) == title]
    label = title if title in own else next(iter(own), None)
    return [] if label is None else results.of(label)


def once(several: Sequence[Results], title: str) -> dict[str, list[Result]]:
    """Finished runs of a method by scenario; the first results that have some speak for it."""
    found: dict[str, list[Result]] = {}
    for results in several:
        runs = runs_of(results, title)
        if runs:
            found.setdefault(results.scenario, runs)
    return found

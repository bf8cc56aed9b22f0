"""Choose a method without clean labels: which one explains held-out observed labels best.

Every run keeps what its networks predict for the validation images. The tempered log-likelihood of
their observed labels (`adagc.choice`) is computed of each, and methods are compared as in a
recommendation: the interval of a difference covers the choice of images and of seeds, and is
corrected for the number of methods. Nothing here reads a clean label or a score made from one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from adagc import choice
from adagc.bench.results import Results
from adagc.choice import TIE
from adagc.compare.comparison import Comparison
from adagc.compare.explaining import Fit, Kept, check_same, read, resample
from adagc.compare.intervals import Difference
from adagc.compare.tables import footnote
from adagc.compare.words import listed
from adagc.errors import AdagcError
from adagc.methods.supposed import opposed
from adagc.training.views import VIEWS, View
from adagc.types import NetworkRole

ROLES = (NetworkRole.AVERAGE, NetworkRole.DEPLOYED)  # the networks that are looked at
_ENOUGH = 3  # seeds that are asked for where there is only one


@dataclass(frozen=True)
class Row:
    """One method."""

    label: str
    footnote: str = ""  # the mark of a method that is told more than observed labels
    fits: Mapping[str, Fit] = field(default_factory=dict)  # by the word of a view for its network
    gap: Difference | None = None  # the chosen method minus this one
    tie: bool = False  # whether it cannot be told apart from the chosen one
    seconds: float | None = None
    state: str = ""  # what is missing


@dataclass(frozen=True)
class Choosing:
    """The methods of a scenario by how well they explain the observed labels, and which to use."""

    scenario: str
    title: str
    view: View  # which network of every run is ranked, after which epoch
    rows: tuple[Row, ...]  # the best first
    chosen: str = ""  # the method to use; empty if there is nothing to choose from
    ties: tuple[str, ...] = ()  # the best first
    compared: int = 0  # number of methods that could have been chosen
    seeds: int = 0  # number of seeds
    images: int = 0  # number of validation images
    missing: str = ""  # why nothing can be chosen
    hint: str = ""  # whether labels look random or dominant; empty if nothing tells
    clock: str = "time"  # what `Row.seconds` are

    @property
    def sentence(self) -> str:
        """Which method to use, in one sentence."""
        if not self.chosen:
            return f"There is nothing to choose from: {self.missing}."
        best = f"Use {self.chosen}: it explains your labels best"
        if self.ties:
            are = "is a tie" if len(self.ties) == 1 else "are ties"
            best += f"; {listed(self.ties)} {are}"
        if self.seeds == 1:
            seeds = " ".join(map(str, range(_ENOUGH)))
            best += f" (with one seed; another may change this: try --seeds {seeds})"
        return f"{best}."

    def to_dict(self) -> dict[str, Any]:
        """All fields and the sentence, ready for `json.dumps`."""
        own = {"view": self.view.name, "tie_below": TIE, "sentence": self.sentence}
        return {**asdict(self), **own}


def choose(results: Results, view: View = VIEWS["averaged-best"], title: str = "") -> Choosing:
    """Rank the rows of a scenario by the tempered log-likelihood of observed validation labels.

    A difference from the best row that is below `TIE`, or whose interval contains 0, is a tie.
    Rows that are told clean labels or their frequencies are ranked, but not chosen.

    Args:
        results: The results of its runs; their test scores are not looked at.
        view: Which network of every run is ranked, after which epoch. The trained network and its
            average are both in the result.
        title: Title of the scenario; its name by default.
    """
    read_rows = [_read(results, label, view) for label in results.labels]
    rows = sorted((row for row, _ in read_rows), key=lambda row: _order(row, view))
    judged = {row.label: kept for row, kept in read_rows if kept}
    candidates = [row.label for row in rows if row.label in judged and not row.footnote]
    common: dict[str, Any] = {
        "scenario": results.scenario,
        "title": title or results.scenario,
        "view": view,
        "clock": results.clock,
    }
    if len(candidates) < 2:
        return Choosing(**common, rows=tuple(rows), missing=_missing(rows, candidates, view))
    check_same(one for kept in judged.values() for one in kept)
    drawn = resample(judged)
    comparison = Comparison(drawn, candidates)
    if not comparison.gaps:
        return Choosing(
            **common, rows=tuple(rows), missing="no two methods have a run with the same seed"
        )
    gaps = dict(comparison.gaps)
    ties = {label for label, gap in gaps.items() if gap.mean < TIE or not gap.is_clear}
    for row in rows:
        told = row.footnote and row.label in judged
        if told and (gap := comparison.difference(comparison.leader, row.label)) is not None:
            gaps[row.label] = gap
    return Choosing(
        **common,
        rows=tuple(replace(r, gap=gaps.get(r.label), tie=r.label in ties) for r in rows),
        chosen=comparison.leader,
        ties=tuple(row.label for row in rows if row.label in ties),
        compared=len(comparison.candidates),
        seeds=len({one.seed for kept in judged.values() for one in kept}),
        images=drawn.images,
        hint=_hint(results, comparison, judged),
    )


def _read(results: Results, label: str, view: View) -> tuple[Row, Sequence[Kept]]:
    """A row with both of its networks, and the runs that can be compared in this view."""
    runs = results.of(label)
    row = Row(label, footnote(results.given(label)), seconds=results.cost(label))
    if not runs:
        return replace(row, state=results.absence(label)), ()
    try:
        kept = {one.word: read(runs, one) for one in (View(role, view.choice) for role in ROLES)}
    except AdagcError as error:
        return replace(row, state=str(error)), ()
    fits = {word: Fit.of(own) for word, own in kept.items() if own}
    count, planned = len(kept[view.word]), results.count(label)
    state = f"{count} of {planned} runs" if 0 < count < planned else ""
    if not count:
        state = f"no {view.network}" if fits else "no observed label of a validation image"
    return replace(row, fits=fits, state=state), kept[view.word]


def _order(row: Row, view: View) -> float:
    """The best first, and rows without a value last."""
    return -row.fits[view.word].likelihood if view.word in row.fits else math.inf


def _missing(rows: Sequence[Row], candidates: Sequence[str], view: View) -> str:
    """Why there are not two methods to choose from."""
    states = [f"{row.label}: {row.state.rstrip('.')}" for row in rows if row.state]
    reason = f" ({states[0]})" if states else ""
    who = f"only {candidates[0]}" if candidates else "none"
    return (
        f"of the methods that are told nothing but observed labels, {who} has kept what its"
        f" {view.network} predicts for validation images{reason}"
    )


def _hint(results: Results, comparison: Comparison, judged: Mapping[str, Sequence[Kept]]) -> str:
    """Whether labels look random or dominant, if methods that suppose each are among the rows."""
    labels = {results.method(label): label for label in judged}
    pair = opposed(labels)
    if pair is None:
        return ""
    gap = comparison.difference(labels[pair[0]], labels[pair[1]])
    if gap is None:
        return ""
    found = choice.Difference(gap.mean, gap.low, gap.high, gap.images, gap.seeds)
    return choice.hint(found, *pair)

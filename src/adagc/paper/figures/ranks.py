"""The figure of ranks: a critical-difference diagram of methods over all scenarios and seeds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adagc.paper.canvas import PAGE, figure, in_style
from adagc.paper.figures.reading import (
    OURS,
    NothingToDrawError,
    accuracies,
    footnotes,
    marked,
    methods,
)
from adagc.paper.ranking import Friedman, cliques, critical_difference, friedman

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results
    from adagc.training.views import View

ENOUGH = 5  # number of blocks below which Nemenyi's approximation is not reliable
_LINE = 0.185  # height of a line of labels in inches
_MARGIN = 1.45  # space for labels on either side of the axis in inches
_BAR = 0.5  # distance between bars, in lines
_WIDEST = 120  # characters in a line of the notes


@dataclass(frozen=True)
class Blocks:
    """Comparisons of the same methods under several conditions, one block per condition."""

    methods: tuple[str, ...]
    conditions: tuple[tuple[str, int], ...]  # scenario and seed of each block
    scores: NDArray[np.float64]  # (blocks, methods) test mAP in per cent
    left_out: tuple[str, ...]  # methods without a finished run in some scenario


@in_style
def draw_ranks(several: Sequence[Results], view: View) -> Figure:
    """Draw the mean ranks of all methods that train without clean labels.

    Bars join methods whose ranks do not differ significantly.
    """
    blocks = comparisons(several, view)
    count, k = blocks.scores.shape
    if count < 2 or k < 2:
        raise NothingToDrawError(
            f"{k} method(s) finished together in {count} scenario and seed pair(s), but ranks need"
            " 2 of each: adagc bench SCENARIO ..."
        )
    test = friedman(blocks.scores)
    difference = critical_difference(k, count)
    order = np.argsort(test.mean_ranks, kind="stable")
    ordered = test.mean_ranks[order]
    bars = _levels(ordered, cliques(ordered.tolist(), difference))
    first = -(0.9 + _BAR * (1 + max((level for *_, level in bars), default=-1)) + 0.3)
    titles = marked(several)
    notes = _notes(blocks, test, view, footnotes(titles[name] for name in blocks.methods))
    bottom = first - math.ceil(k / 2) - 0.2 - 0.75 * len(notes)

    made, (ax,) = figure(PAGE, _LINE * (2.6 - bottom) + 0.1)
    margin = (k - 1) * _MARGIN / (PAGE - 2 * _MARGIN)
    ax.set_xlim(1 - margin, k + margin)
    ax.set_ylim(bottom, 2.6)
    ax.set_axis_off()
    _draw_axis(ax, k, difference)
    for start, end, level in bars:
        y = -0.7 - _BAR * level
        # A little longer than needed, so that the bar clearly reaches the outermost ranks.
        reach = 0.006 * (k - 1)
        ax.plot([start - reach, end + reach], [y, y], color="black", linewidth=3)
    _draw_methods(ax, [blocks.methods[i] for i in order], titles, ordered, first)
    ax.text((k + 1) / 2, bottom, "\n".join(notes), ha="center", va="bottom", fontsize=7)
    return made


def comparisons(several: Sequence[Results], view: View) -> Blocks:
    """The test scores of methods in all scenarios and seeds that can be compared.

    Methods are compared if they have a tested run in every scenario, in the seeds that all of them
    have. Methods that train with clean labels are upper bounds and are left out.
    """
    tables: dict[str, dict[str, dict[int, float]]] = {}
    for results in several:
        rows = [label for label in methods(results) if "truth" not in results.given(label)]
        tested = {label: own for label in rows if (own := accuracies(results, label, view))}
        if tested:
            tables.setdefault(results.scenario, tested)
    names = list(dict.fromkeys(label for rows in tables.values() for label in rows))
    complete = [name for name in names if all(name in rows for rows in tables.values())]
    conditions = [
        (scenario, seed)
        for scenario, rows in tables.items()
        for seed in sorted({seed for name in complete for seed in rows[name]})
        if all(seed in rows[name] for name in complete)
    ]
    scores = [[tables[scenario][name][seed] for name in complete] for scenario, seed in conditions]
    return Blocks(
        tuple(complete),
        tuple(conditions),
        np.array(scores, np.float64).reshape(len(conditions), len(complete)),
        tuple(name for name in names if name not in complete),
    )


def _levels(
    ordered: NDArray[np.float64], groups: Sequence[tuple[int, int]]
) -> list[tuple[float, float, int]]:
    """The bars of these groups as (first rank, last rank, level); no two touch on a level."""
    ends: list[float] = []  # end of the last bar on each level
    bars = []
    gap = 0.03 * (len(ordered) - 1)
    for first, last in groups:
        start, end = float(ordered[first]), float(ordered[last])
        level = next((i for i, used in enumerate(ends) if start > used + gap), len(ends))
        ends[level : level + 1] = [end]
        bars.append((start, end, level))
    return bars


def _draw_axis(ax: Axes, k: int, difference: float) -> None:
    ax.plot([1, k], [0, 0], color="black", linewidth=1)
    step = 1 if k <= 12 else 2
    for rank in range(1, k + 1):
        named = (rank - 1) % step == 0
        ax.plot([rank, rank], [0, 0.3 if named else 0.2], color="black", linewidth=0.8)
        if named:
            ax.text(rank, 0.4, str(rank), ha="center", va="bottom", fontsize=7)
    ax.text(k + 0.02 * (k - 1), 0.0, "mean rank", ha="left", va="center", fontsize=7)
    y, end = 1.75, 1 + difference
    text = f"critical difference = {difference:.2f}"
    if end <= k:
        ax.plot([1, end], [y, y], color="black", linewidth=1)
        for x in (1, end):
            ax.plot([x, x], [y - 0.2, y + 0.2], color="black", linewidth=1)
        end += 0.015 * (k - 1)
    else:
        end, text = 1, f"{text}: more than any two ranks can differ"
    ax.text(end, y, text, ha="left", va="center", fontsize=7)


def _draw_methods(
    ax: Axes,
    names: Sequence[str],
    titles: Mapping[str, str],
    ordered: NDArray[np.float64],
    first: float,
) -> None:
    """Label the better half on the left (best on top), the rest on the right (worst on top)."""
    k = len(names)
    half = math.ceil(k / 2)
    for place, (name, rank) in enumerate(zip(names, ordered, strict=True)):
        left = place < half
        y = first - (place if left else k - 1 - place)
        side = 1 - 0.01 * (k - 1) if left else k + 0.01 * (k - 1)
        ax.plot([rank, rank, side], [0, y, y], color="black", linewidth=0.7)
        ax.text(
            side - 0.006 * (k - 1) if left else side + 0.006 * (k - 1),
            y,
            f"{titles[name]}  {rank:.2f}" if left else f"{rank:.2f}  {titles[name]}",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
            fontweight="bold" if name == OURS else "normal",
        )


def _notes(blocks: Blocks, test: Friedman, view: View, explained: str) -> list[str]:
    """The notes below the diagram: tests, number of blocks, marks and methods left out."""
    count = len(blocks.conditions)
    scenarios = len({scenario for scenario, _ in blocks.conditions})
    p = f"p = {test.p:.3f}" if test.p >= 0.001 else "p < 0.001"
    f = "∞" if math.isinf(test.f) else f"{test.f:.2f}"
    few = f": fewer than {ENOUGH}, so indicative only" if count < ENOUGH else ""
    notes = [
        f"test mAP of {view.networks}; Friedman: F({test.degrees[0]}, {test.degrees[1]}) = {f},"
        f" {p}; bars join methods that do not differ at 0.05 (Nemenyi)",
        f"{count} blocks (pairs of scenario and seed, {scenarios} scenario"
        f"{'s' if scenarios > 1 else ''}){few}",
    ]
    if explained:
        notes[1] += f"; {explained}"
    if blocks.left_out:
        notes.append(f"left out, not finished in every scenario: {', '.join(blocks.left_out)}")
    return [line for note in notes for line in textwrap.wrap(note, _WIDEST)]

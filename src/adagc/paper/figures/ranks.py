"""Which methods differ over all scenarios and seeds: a critical-difference diagram."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adagc.paper.canvas import PAGE, figure, in_style
from adagc.paper.figures.reading import (
    OURS,
    NothingToDrawError,
    Reading,
    footnotes,
    marked,
    methods,
    needs,
)
from adagc.paper.ranking import Friedman, cliques, critical_difference, friedman

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results

ENOUGH = 5  # blocks, below which Nemenyi's approximation means little
_LINE = 0.185  # inches between labels
_MARGIN = 1.45  # inches beside the axis, for labels
_BAR = 0.5  # lines between bars
_WIDEST = 120  # letters of a note


@dataclass(frozen=True)
class Blocks:
    """All methods under equal conditions, many times."""

    methods: tuple[str, ...]
    conditions: tuple[tuple[str, int], ...]  # scenario and seed
    scores: NDArray[np.float64]  # (blocks, methods) test mAP in per cent
    left_out: tuple[str, ...]  # methods that did not finish everywhere


@in_style
def draw_ranks(several: Sequence[Results], reading: Reading) -> Figure:
    """Mean ranks of all methods without clean labels; bars join what does not differ."""
    blocks = comparisons(several, reading)
    count, k = blocks.scores.shape
    if count < 2 or k < 2:
        raise NothingToDrawError(
            f"{k} method(s) finished together in {count} scenario and seed pair(s), ranks need 2 of"
            " each: adagc bench SCENARIO ..."
        )
    test = friedman(blocks.scores)
    difference = critical_difference(k, count)
    order = np.argsort(test.mean_ranks, kind="stable")
    ordered = test.mean_ranks[order]
    bars = _levels(ordered, cliques(ordered.tolist(), difference))
    first = -(0.9 + _BAR * (1 + max((level for *_, level in bars), default=-1)) + 0.3)
    notes = _notes(blocks, test)
    bottom = first - math.ceil(k / 2) - 0.2 - 0.75 * len(notes)

    made, (ax,) = figure(PAGE, _LINE * (2.6 - bottom) + 0.1)
    margin = (k - 1) * _MARGIN / (PAGE - 2 * _MARGIN)
    ax.set_xlim(1 - margin, k + margin)
    ax.set_ylim(bottom, 2.6)
    ax.set_axis_off()
    _draw_axis(ax, k, difference)
    for start, end, level in bars:
        y = -0.7 - _BAR * level
        # A little beyond the outermost ranks, so that it is seen to reach them.
        reach = 0.006 * (k - 1)
        ax.plot([start - reach, end + reach], [y, y], color="black", linewidth=3)
    _draw_methods(ax, [blocks.methods[i] for i in order], ordered, first)
    ax.text((k + 1) / 2, bottom, "\n".join(notes), ha="center", va="bottom", fontsize=7)
    return made


def comparisons(several: Sequence[Results], reading: Reading) -> Blocks:
    """Scenarios and seeds in which all methods finished that finished in every scenario at all.

    Methods that train with clean labels are bounds, not competitors.
    """
    tables: dict[str, dict[str, dict[int, float]]] = {}
    for results in several:
        rows = [label for label in methods(results) if "truth" not in needs(label)]
        found = {label: own for label in rows if (own := reading.accuracies(results, label))}
        if found:
            tables.setdefault(results.scenario, found)
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
    """Bars from rank to rank, on levels on which they do not touch."""
    ends: list[float] = []  # how far each level is used
    found = []
    gap = 0.03 * (len(ordered) - 1)
    for first, last in groups:
        start, end = float(ordered[first]), float(ordered[last])
        level = next((i for i, used in enumerate(ends) if start > used + gap), len(ends))
        ends[level : level + 1] = [end]
        found.append((start, end, level))
    return found


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
        end, text = 1, f"{text}: more than ranks can differ by"
    ax.text(end, y, text, ha="left", va="center", fontsize=7)


def _draw_methods(
    ax: Axes, names: Sequence[str], ordered: NDArray[np.float64], first: float
) -> None:
    """The better half on the left, best on top; the rest on the right, worst on top."""
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
            f"{marked(name)}  {rank:.2f}" if left else f"{rank:.2f}  {marked(name)}",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
            fontweight="bold" if name == OURS else "normal",
        )


def _notes(blocks: Blocks, test: Friedman) -> list[str]:
    """What a reader must know before believing the bars."""
    count = len(blocks.conditions)
    scenarios = len({scenario for scenario, _ in blocks.conditions})
    p = f"p = {test.p:.3f}" if test.p >= 0.001 else "p < 0.001"
    f = "∞" if math.isinf(test.f) else f"{test.f:.2f}"
    few = f": fewer than {ENOUGH}, indicative only" if count < ENOUGH else ""
    notes = [
        f"test mAP; Friedman: F({test.degrees[0]}, {test.degrees[1]}) = {f}, {p}; bars join methods"
        " that do not differ at 0.05 (Nemenyi)",
        f"{count} blocks (pairs of scenario and seed, {scenarios} scenario"
        f"{'s' if scenarios > 1 else ''}){few}",
    ]
    explained = footnotes(blocks.methods)
    if explained:
        notes[1] += f"; {explained}"
    if blocks.left_out:
        notes.append(f"not finished in every scenario: {', '.join(blocks.left_out)}")
    return [line for note in notes for line in textwrap.wrap(note, _WIDEST)]

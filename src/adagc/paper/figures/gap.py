"""How much of what missing labels cost a method wins back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adagc.paper.canvas import COLOURS, COLUMN, MARKERS, figure, in_style
from adagc.paper.figures.frame import GREY, Handle, legend_above
from adagc.paper.figures.reading import (
    CEILING,
    FLOOR,
    OURS,
    NothingToDrawError,
    Reading,
    footnotes,
    marked,
    methods,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results


@dataclass(frozen=True)
class Share:
    """Of the gap in test mAP between AN and GT w/ BCE, in per cent."""

    mean: float
    deviation: float | None  # over seeds; None for a single one


@in_style
def draw_gap(several: Sequence[Results], reading: Reading) -> Figure:
    """Share of the gap between AN and GT w/ BCE that every method closes, by scenario."""
    found: dict[str, dict[str, Share]] = {}
    for results in several:
        shares = gap_shares(results, reading)
        if shares:
            found.setdefault(results.scenario, shares)
    if not found:
        raise NothingToDrawError(
            f"no scenario with {FLOOR}, {CEILING} above it and one more method, all with the same"
            f" seed: adagc bench SCENARIO --methods {FLOOR} '{CEILING}' {OURS}"
        )
    names = sorted(
        {name for shares in found.values() for name in shares},
        # The best on top; names decide between equals.
        key=lambda name: (-_mean(found, name), name),
    )
    made, (ax,) = figure(COLUMN, 0.17 * len(names) * max(1.0, 0.45 * len(found)) + 0.8)
    entries = {}
    for index, (scenario, shares) in enumerate(found.items()):
        # Scenarios lie beside each other in the row of their method.
        shift = 0.0 if len(found) == 1 else 0.6 * (index / (len(found) - 1) - 0.5)
        entries[scenario] = _draw(ax, names, shares, index, shift)
    _finish(ax, names)
    explained = footnotes(names)
    if explained:
        made.supxlabel(explained, fontsize=6.5)
    if len(found) > 1:
        legend_above(made, entries)
    else:
        ax.set_title(next(iter(found)))
    return made


def gap_shares(results: Results, reading: Reading) -> dict[str, Share]:
    """Of every method but the two that span the gap; empty if there is none to close.

    Methods are compared seed by seed, and all are measured against the mean gap.
    """
    low, high = (reading.accuracies(results, label) for label in (FLOOR, CEILING))
    found = {}
    for label in methods(results):
        own = reading.accuracies(results, label)
        seeds = sorted(own.keys() & low.keys() & high.keys())
        if label in (FLOOR, CEILING) or not seeds:
            continue
        gap = statistics.fmean(high[seed] - low[seed] for seed in seeds)
        if gap <= 0:
            continue
        shares = [100 * (own[seed] - low[seed]) / gap for seed in seeds]
        deviation = statistics.stdev(shares) if len(shares) > 1 else None
        found[label] = Share(statistics.fmean(shares), deviation)
    return found


def _mean(found: Mapping[str, Mapping[str, Share]], name: str) -> float:
    return statistics.fmean(shares[name].mean for shares in found.values() if name in shares)


def _draw(
    ax: Axes, names: Sequence[str], shares: Mapping[str, Share], index: int, shift: float
) -> Handle:
    shown = [name for name in names if name in shares]
    return ax.errorbar(
        [shares[name].mean for name in shown],
        [names.index(name) + shift for name in shown],
        xerr=[shares[name].deviation or 0.0 for name in shown],
        fmt=MARKERS[index % len(MARKERS)],
        color=COLOURS[index % len(COLOURS)],
        markersize=4,
        elinewidth=0.9,
        capsize=1.5,
    )


def _finish(ax: Axes, names: Sequence[str]) -> None:
    for at in (0, 100):
        ax.axvline(at, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    ax.set_yticks(range(len(names)), [marked(name) for name in names])
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name == OURS else "normal")
    for place in range(1, len(names), 2):
        ax.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    ax.grid(visible=False, axis="y")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel(f"share of the gap in test mAP closed (%)\n0: {FLOOR}, 100: {CEILING}")

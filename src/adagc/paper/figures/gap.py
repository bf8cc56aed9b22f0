"""The figure of gaps: how much of the mAP that missing labels cost a method recovers."""

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
    accuracies,
    footnotes,
    marked,
    methods,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results
    from adagc.training.views import View


@dataclass(frozen=True)
class Share:
    """Share of the gap in test mAP between AN and GT w/ BCE that a method closes, in per cent."""

    mean: float  # over seeds
    deviation: float | None  # standard deviation over seeds; None for a single seed


@in_style
def draw_gap(several: Sequence[Results], view: View) -> Figure:
    """Draw the share of the gap between AN and GT w/ BCE that each method closes, by scenario.

    All three are seen in the same view, so that averaging the weights does not count as a gain.
    """
    scenarios: dict[str, dict[str, Share]] = {}
    for results in several:
        shares = gap_shares(results, view)
        if shares:
            scenarios.setdefault(results.scenario, shares)
    if not scenarios:
        raise NothingToDrawError(
            f"no scenario in which {FLOOR}, {CEILING} and one more method finished with the same"
            f" seed and {CEILING} has an mAP above that of {FLOOR}: adagc bench SCENARIO --methods"
            f" {FLOOR} '{CEILING}' {OURS}"
        )
    names = sorted(
        {name for shares in scenarios.values() for name in shares},
        # The best method first; equals by name.
        key=lambda name: (-_mean(scenarios, name), name),
    )
    count = len(scenarios)
    made, (ax,) = figure(COLUMN, 0.17 * len(names) * max(1.0, 0.45 * count) + 0.8)
    entries = {}
    for index, (scenario, shares) in enumerate(scenarios.items()):
        # The points of several scenarios are shifted within the row of their method.
        shift = 0.0 if count == 1 else 0.6 * (index / (count - 1) - 0.5)
        entries[scenario] = _draw(ax, names, shares, index, shift)
    titles = marked(several)
    _finish(ax, names, titles)
    explained = footnotes(titles[name] for name in names)
    made.supxlabel("\n".join(filter(None, [view.networks, explained])), fontsize=6.5)
    if count > 1:
        legend_above(made, entries)
    else:
        ax.set_title(next(iter(scenarios)))
    return made


def gap_shares(results: Results, view: View) -> dict[str, Share]:
    """The shares of all methods but AN and GT w/ BCE; empty if there is no gap between these.

    A method is compared with AN seed by seed; the differences are divided by the mean gap over the
    seeds.
    """
    low, high = (accuracies(results, label, view) for label in (FLOOR, CEILING))
    closed = {}
    for label in methods(results):
        own = accuracies(results, label, view)
        seeds = sorted(own.keys() & low.keys() & high.keys())
        if label in (FLOOR, CEILING) or not seeds:
            continue
        gap = statistics.fmean(high[seed] - low[seed] for seed in seeds)
        if gap <= 0:
            continue
        shares = [100 * (own[seed] - low[seed]) / gap for seed in seeds]
        deviation = statistics.stdev(shares) if len(shares) > 1 else None
        closed[label] = Share(statistics.fmean(shares), deviation)
    return closed


def _mean(scenarios: Mapping[str, Mapping[str, Share]], name: str) -> float:
    return statistics.fmean(shares[name].mean for shares in scenarios.values() if name in shares)


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


def _finish(ax: Axes, names: Sequence[str], titles: Mapping[str, str]) -> None:
    for at in (0, 100):
        ax.axvline(at, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    ax.set_yticks(range(len(names)), [titles[name] for name in names])
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name == OURS else "normal")
    for place in range(1, len(names), 2):
        ax.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    ax.grid(visible=False, axis="y")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel(f"share of the gap in test mAP closed (%)\n0: {FLOOR}, 100: {CEILING}")

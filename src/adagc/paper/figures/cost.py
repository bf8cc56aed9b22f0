"""The figure of costs: test mAP against training time."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adagc.paper.canvas import COLOURS, in_style
from adagc.paper.figures.frame import GREY, Handle, legend_above, panels
from adagc.paper.figures.placing import place
from adagc.paper.figures.reading import (
    FLOOR,
    OURS,
    NothingToDrawError,
    accuracies,
    methods,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results
    from adagc.training.views import View


@dataclass(frozen=True)
class Point:
    """One method in one scenario."""

    name: str
    cost: float  # training time divided by that of AN
    accuracy: float  # mean test mAP over seeds, in per cent
    deviation: float  # standard deviation of the test mAP over seeds
    bound: bool  # whether it trains with clean labels
    told: bool  # whether it is told label frequencies
    estimated: bool = False  # whether it is given an estimate of them


class _Kind(NamedTuple):
    name: str
    style: dict[str, Any]


_FAR = 6.0  # typographic points; a name further away is joined to its point by a line
_PAPER = 9.0  # height of a page in inches
_FRONT = "most accurate for its time"
_KINDS = {
    "ours": _Kind("AdaGC", {"marker": "D", "color": COLOURS[1]}),
    "plain": _Kind("observed labels only", {"marker": "o", "color": COLOURS[0]}),
    "told": _Kind(
        "told label frequencies", {"marker": "s", "color": COLOURS[2], "markerfacecolor": "white"}
    ),
    "estimated": _Kind("estimated label frequencies", {"marker": "s", "color": COLOURS[0]}),
    "bound": _Kind(
        "clean labels (bound)", {"marker": "^", "color": "black", "markerfacecolor": "white"}
    ),
}


@in_style
def draw_cost(several: Sequence[Results], view: View) -> Figure:
    """Draw test mAP against training time relative to AN: CPU time, if it is known of all runs.

    A line joins the methods than which no cheaper one is more accurate.
    """
    scenarios: dict[str, list[Point]] = {}
    clocks: dict[str, str] = {}
    for results in several:
        points = cost_points(results, view)
        if len(points) > 1 and results.scenario not in scenarios:
            scenarios[results.scenario] = points
            clocks[results.scenario] = results.clock
    if not scenarios:
        raise NothingToDrawError(
            f"no scenario with finished, tested runs of {FLOOR} and of another method: adagc bench"
            f" SCENARIO --methods {FLOOR} {OURS}"
        )
    # A panel with more than ten names needs the whole width of a page.
    crowded = max(map(len, scenarios.values())) > 10
    height = max(2.2, min(3.2, _PAPER / len(scenarios))) if crowded else 2.9
    made, axes = panels(
        list(scenarios), height=height, across=1 if crowded else 2, narrow=0 if crowded else 1
    )
    entries: dict[str, Handle] = {}
    for ax, (scenario, points) in zip(axes, scenarios.items(), strict=True):
        entries |= _draw_points(ax, points)
        ax.set_xlabel(f"{clocks[scenario]} of training relative to {FLOOR}")
        ax.set_ylabel("test mAP (%)")
    made.supxlabel(view.networks, fontsize=6.5)
    order = [kind.name for kind in _KINDS.values()] + [_FRONT]
    legend_above(made, {name: entries[name] for name in order if name in entries})
    made.draw_without_rendering()
    made.set_layout_engine("none")  # panels must not move after names are placed in them
    for ax, points in zip(axes, scenarios.values(), strict=True):
        _name_points(ax, points)
    return made


def cost_points(results: Results, view: View) -> list[Point]:
    """The methods that were tested; an empty list if the training time of AN is not known."""
    unit = results.cost(FLOOR) if FLOOR in results.labels else None
    if not unit:
        return []
    points = []
    for label in methods(results):
        values = list(accuracies(results, label, view).values())
        seconds = results.cost(label)
        if values and seconds:
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            given = results.given(label)
            points.append(
                Point(
                    label,
                    seconds / unit,
                    statistics.fmean(values),
                    deviation,
                    bound="truth" in given,
                    told="priors" in given,
                    estimated="estimate" in given,
                )
            )
    return points


def front(points: Sequence[Point]) -> list[Point]:
    """The methods than which no other is at most as costly and more accurate (Pareto front).

    Methods that train with clean labels are not considered.
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.accuracy, p.name)):
        if not point.bound and (not best or point.accuracy > best[-1].accuracy):
            best.append(point)
    return best


def _kind(point: Point) -> _Kind:
    if point.name == OURS:
        return _KINDS["ours"]
    kinds = (("bound", point.bound), ("told", point.told), ("estimated", point.estimated))
    return _KINDS[next((name for name, holds in kinds if holds), "plain")]


def _draw_points(ax: Axes, points: Sequence[Point]) -> dict[str, Handle]:
    entries: dict[str, Handle] = {}
    best = front(points)
    (entries[_FRONT],) = ax.plot(
        [point.cost for point in best],
        [point.accuracy for point in best],
        color=GREY,
        linewidth=1,
        linestyle=(0, (4, 2)),
        drawstyle="steps-post",
        zorder=1,
    )
    for point in points:
        kind = _kind(point)
        ax.errorbar(point.cost, point.accuracy, point.deviation, ecolor="#bbbbbb", elinewidth=0.8)
        (drawn,) = ax.plot(point.cost, point.accuracy, linestyle="none", markersize=4, **kind.style)
        entries.setdefault(kind.name, drawn)
    _scale(ax, [point.cost for point in points])
    ax.margins(x=0.12, y=0.09)
    return entries


def _scale(ax: Axes, costs: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, with ticks such as 2× instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    ax.set_xscale("log")
    wide = max(costs) > 4 * min(costs)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.xaxis.set_minor_locator(NullLocator())


def _name_points(ax: Axes, points: Sequence[Point]) -> None:
    """Write names beside points where there is space; all lengths are in typographic points."""
    texts = [
        ax.annotate(
            point.name,
            (point.cost, point.accuracy),
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=6.5,
            fontweight="bold" if point.name == OURS else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.3},
        )
        for point in points
    ]
    unit = ax.figure.dpi / 72  # pixels per typographic point
    extents = [text.get_window_extent() for text in texts]
    sizes = np.array([[box.width, box.height] for box in extents]) / unit
    anchors = _on_paper(ax, [(point.cost, point.accuracy) for point in points], unit)
    left, bottom, right, top = np.array(ax.get_window_extent().extents) / unit
    centres = place(anchors, sizes, (left, bottom, right, top), _front_line(ax, points, unit))
    for text, centre, size, anchor in zip(texts, centres, sizes, anchors, strict=True):
        x, y = (centre - anchor).tolist()
        text.set_position((x, y))
        end = np.clip(anchor, centre - size / 2, centre + size / 2)
        if np.linalg.norm(end - anchor) > _FAR:
            line = ax.transData.inverted().transform(np.array([anchor, end]) * unit)
            ax.plot(*line.T, color="black", linewidth=0.4, zorder=1, scalex=False, scaley=False)


def _on_paper(ax: Axes, values: Sequence[tuple[float, float]], unit: float) -> NDArray[np.float64]:
    """(N, 2) positions of these data values in the figure, in typographic points."""
    return np.asarray(ax.transData.transform(np.array(values)), np.float64) / unit


def _front_line(ax: Axes, points: Sequence[Point], unit: float) -> NDArray[np.float64]:
    """(M, 2) closely spaced positions along the line that joins the front, in points."""
    best = front(points)
    corners: list[tuple[float, float]] = []
    for point, following in itertools.pairwise(best):
        corners += [(point.cost, point.accuracy), (following.cost, point.accuracy)]
    if not corners:
        return np.zeros((0, 2))
    bends = _on_paper(ax, [*corners, (best[-1].cost, best[-1].accuracy)], unit)
    shares = np.linspace(0, 1, 15)[:, None]
    return np.concatenate([a + shares * (b - a) for a, b in itertools.pairwise(bends)])

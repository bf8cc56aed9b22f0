"""What accuracy costs: test mAP against training time."""

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
from adagc.paper.figures.reading import FLOOR, OURS, NothingToDrawError, Reading, methods, needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results


@dataclass(frozen=True)
class Point:
    """One method in one scenario."""

    name: str
    cost: float  # training time, AN's is 1
    accuracy: float  # mean test mAP in per cent
    deviation: float  # over seeds
    bound: bool  # trains with clean labels
    told: bool  # is told label frequencies


class _Kind(NamedTuple):
    name: str
    style: dict[str, Any]


_FAR = 6.0  # typographic points, from which on a line leads from a point to its name
_PAPER = 9.0  # inches of a page's height
_FRONT = "most accurate for its time"
_KINDS = {
    "ours": _Kind("AdaGC", {"marker": "D", "color": COLOURS[1]}),
    "plain": _Kind("observed labels only", {"marker": "o", "color": COLOURS[0]}),
    "told": _Kind(
        "told label frequencies", {"marker": "s", "color": COLOURS[2], "markerfacecolor": "white"}
    ),
    "bound": _Kind(
        "clean labels (bound)", {"marker": "^", "color": "black", "markerfacecolor": "white"}
    ),
}


@in_style
def draw_cost(several: Sequence[Results], reading: Reading) -> Figure:
    """Test mAP against training time relative to AN; a line joins what nothing cheaper beats."""
    found: dict[str, list[Point]] = {}
    for results in several:
        points = cost_points(results, reading)
        if len(points) > 1:
            found.setdefault(results.scenario, points)
    if not found:
        raise NothingToDrawError(
            f"no scenario with finished, tested runs of {FLOOR} and of another method: adagc bench"
            f" SCENARIO --methods {FLOOR} {OURS}"
        )
    # So many names need the whole width.
    crowded = max(map(len, found.values())) > 10
    height = max(2.2, min(3.2, _PAPER / len(found))) if crowded else 2.9
    made, axes = panels(
        list(found), height=height, across=1 if crowded else 2, narrow=0 if crowded else 1
    )
    entries: dict[str, Handle] = {}
    for ax, points in zip(axes, found.values(), strict=True):
        entries |= _draw_points(ax, points)
    order = [kind.name for kind in _KINDS.values()] + [_FRONT]
    legend_above(made, {name: entries[name] for name in order if name in entries})
    made.draw_without_rendering()
    made.set_layout_engine("none")  # names are placed in panels as they are now
    for ax, points in zip(axes, found.values(), strict=True):
        _name_points(ax, points)
    return made


def cost_points(results: Results, reading: Reading) -> list[Point]:
    """Methods that were tested; none without the time of AN."""
    unit = results.seconds(FLOOR) if FLOOR in results.labels else None
    if not unit:
        return []
    found = []
    for label in methods(results):
        values = list(reading.accuracies(results, label).values())
        seconds = results.seconds(label)
        if values and seconds:
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            told = needs(label)
            found.append(
                Point(
                    label,
                    seconds / unit,
                    statistics.fmean(values),
                    deviation,
                    bound="truth" in told,
                    told="priors" in told,
                )
            )
    return found


def front(points: Sequence[Point]) -> list[Point]:
    """Methods than which no other is both as cheap and more accurate; bounds do not compete."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.accuracy, p.name)):
        if not point.bound and (not best or point.accuracy > best[-1].accuracy):
            best.append(point)
    return best


def _kind(point: Point) -> _Kind:
    if point.name == OURS:
        return _KINDS["ours"]
    return _KINDS["bound" if point.bound else "told" if point.told else "plain"]


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
    ax.set_xlabel(f"training time relative to {FLOOR}")
    ax.set_ylabel("test mAP (%)")
    return entries


def _scale(ax: Axes, costs: Sequence[float]) -> None:
    """Factors instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    ax.set_xscale("log")
    wide = max(costs) > 4 * min(costs)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.xaxis.set_minor_locator(NullLocator())


def _name_points(ax: Axes, points: Sequence[Point]) -> None:
    """Write names beside points, where there is room; all lengths are in typographic points."""
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
    unit = ax.figure.dpi / 72  # pixels
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
    """(N, 2) where data lies, in typographic points."""
    return np.asarray(ax.transData.transform(np.array(values)), np.float64) / unit


def _front_line(ax: Axes, points: Sequence[Point], unit: float) -> NDArray[np.float64]:
    """Places along the line that joins the front, close to each other."""
    best = front(points)
    corners: list[tuple[float, float]] = []
    for point, following in itertools.pairwise(best):
        corners += [(point.cost, point.accuracy), (following.cost, point.accuracy)]
    if not corners:
        return np.zeros((0, 2))
    bends = _on_paper(ax, [*corners, (best[-1].cost, best[-1].accuracy)], unit)
    shares = np.linspace(0, 1, 15)[:, None]
    return np.concatenate([a + shares * (b - a) for a, b in itertools.pairwise(bends)])

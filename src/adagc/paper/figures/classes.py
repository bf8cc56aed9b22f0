"""The figure of classes: average precision and flip rate of each class, for a few methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adagc.paper.canvas import COLOURS, COLUMN, MARKERS, PAGE, figure, in_style
from adagc.paper.figures.frame import GREY, Handle, legend_above, lettered
from adagc.paper.figures.reading import CEILING, FLOOR, OURS, NothingToDrawError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Result, Results
    from adagc.training.views import View

CHOSEN = (FLOOR, "WAN", OURS, CEILING)  # the methods that are shown
_LONGEST = 27  # characters; longer class names are cut off


@dataclass(frozen=True)
class ByClass:
    """One scenario: means over seeds in per cent; the class with the highest flip rate first."""

    classes: tuple[str, ...]
    flip_rates: NDArray[np.float64]  # NaN for a class that no training image contains
    # Average precisions by method; NaN for a class that no test image contains.
    precisions: dict[str, NDArray[np.float64]]


@in_style
def draw_classes(several: Sequence[Results], view: View) -> Figure:
    """Draw the average precision (AP) of every class for a few methods, beside its flip rate."""
    tables: dict[str, ByClass] = {}
    for results in several:
        table = by_class(results, view)
        if table is not None:
            tables.setdefault(results.scenario, table)
    if not tables:
        raise NothingToDrawError(
            f"no finished, tested run of {', '.join(CHOSEN)} whose labels' flip rates are known:"
            f" adagc bench SCENARIO --methods {FLOOR} WAN {OURS} '{CEILING}'"
        )
    across = min(2, len(tables))
    rows = math.ceil(len(tables) / across)
    tallest = max(len(table.classes) for table in tables.values())
    made, axes = figure(
        COLUMN if across == 1 else PAGE,
        rows * (0.145 * tallest + 0.75) + 0.2,
        rows=rows,
        columns=2 * across,
        gridspec_kw={"width_ratios": [5, 2] * across},
    )
    entries: dict[str, Handle] = {}
    for number, (scenario, table) in enumerate(tables.items()):
        wide, slim = axes[2 * number : 2 * number + 2]
        wide.set_title(lettered(scenario, number, len(tables)))
        entries |= _draw_precisions(wide, table)
        _draw_flip_rates(slim, table)
    for spare in axes[2 * len(tables) :]:
        spare.remove()
    legend_above(made, {name: entries[name] for name in CHOSEN if name in entries})
    made.supxlabel(view.networks, fontsize=6.5)
    return made


def by_class(results: Results, view: View) -> ByClass | None:
    """The scores of the chosen methods by class; None if no run has both scores and flip rates."""
    precisions: dict[str, NDArray[np.float64]] = {}
    rates: list[NDArray[np.float64]] = []
    classes: tuple[str, ...] | None = None
    for label in CHOSEN:
        runs = results.of(label) if label in results.labels else []
        tested = [
            (run, scores) for run in runs if (scores := view.scores(run.networks)) is not None
        ]
        if not tested:
            continue
        precisions[label] = _mean([scores.per_class.average_precision for _, scores in tested])
        rates += [own for run, _ in tested if (own := _flip_rates(run)) is not None]
        first = tested[0][0].run.scores
        classes = classes if first is None else first.classes
    if classes is None or not rates:
        return None
    flip_rates = _mean(rates)
    order = sorted(range(len(classes)), key=lambda c: (-np.nan_to_num(flip_rates[c], nan=-1), c))
    return ByClass(
        tuple(classes[c] for c in order),
        100 * flip_rates[order],
        {label: 100 * values[order] for label, values in precisions.items()},
    )


def _flip_rates(result: Result) -> NDArray[np.float64] | None:
    """β_c, the share of a class's training images in which it was not observed."""
    labels = result.run.labels
    return None if labels is None or labels.flip_rates is None else labels.flip_rates.beta


def _mean(several: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over seeds of the values that are not NaN."""
    values = np.array(several, np.float64)
    known = ~np.isnan(values)
    sums = np.where(known, values, 0).sum(axis=0)
    return np.where(known.any(axis=0), sums / np.maximum(known.sum(axis=0), 1), np.nan)


def _draw_precisions(ax: Axes, table: ByClass) -> dict[str, Handle]:
    places = np.arange(len(table.classes))
    every = np.array(list(table.precisions.values()))
    known = ~np.isnan(every).all(axis=0)
    low, high = np.nanmin(every[:, known], axis=0), np.nanmax(every[:, known], axis=0)
    ax.hlines(places[known], low, high, color="#bbbbbb", linewidth=1, zorder=1)
    drawn: dict[str, Handle] = {}
    for label, values in table.precisions.items():
        index = CHOSEN.index(label)
        # AN and GT w/ BCE are drawn as rings, so that they do not hide other markers.
        ring = label in (FLOOR, CEILING)
        (drawn[label],) = ax.plot(
            values,
            places,
            MARKERS[index],
            color=COLOURS[index],
            markerfacecolor="none" if ring else COLOURS[index],
            markersize=4.5 if ring else 4,
            zorder=3 if ring else 2,
        )
    ax.set_yticks(places, [_shortened(name) for name in table.classes])
    ax.set_ylim(len(places) - 0.4, -0.6)
    ax.set_xlabel("AP (%)")
    return drawn


def _draw_flip_rates(ax: Axes, table: ByClass) -> None:
    places = np.arange(len(table.classes))
    ax.barh(places, np.nan_to_num(table.flip_rates), height=0.6, color=GREY)
    ax.set_yticks(places, [""] * len(places))
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(places) - 0.4, -0.6)
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 50, 100])
    ax.set_xlabel("flip rate (%)")


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1].rstrip(' ,-')}…"

"""The figure: what one label on more images and all labels of fewer reach for the same price."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adagc.budget.curves import Curve, Estimate
from adagc.paper import canvas
from adagc.paper.canvas import COLOURS, COLUMN, DASHES, MARKERS, in_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.budget.answer import Answer


@in_style
def draw(answer: Answer) -> Figure:
    """Draw both curves over the price, with their intervals, and where they cross."""
    made, (ax,) = canvas.figure(COLUMN, 2.6)
    cost = answer.plan.cost
    _line(ax, answer.single, 1.0, 0, f"one label per image ({answer.plan.method})")
    _line(ax, answer.full, cost, 1, f"all labels, each image {cost:.2g} times the price")
    for where in answer.crossings:
        if len(answer.seeds) > 1:
            ax.axvspan(where.low, where.high, color="#000000", alpha=0.07, linewidth=0)
        ax.axvline(where.images, color="#666666", linewidth=0.8)
    ax.set_xscale("log")
    ticks = np.unique(np.concatenate([answer.single.images, [cost * answer.full.images[-1]]]))
    ax.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("price in single labels")
    ax.set_ylabel("test mAP (%)")
    ax.legend(loc="lower right")
    return made


def _line(ax: Axes, curve: Curve, price: float, index: int, name: str) -> None:
    """A curve over its price, with bars of its intervals."""
    found = [Estimate.of(column) for column in curve.values.T]
    ax.errorbar(
        price * curve.images,
        [one.mean for one in found],
        yerr=[one.half or 0.0 for one in found],
        color=COLOURS[index],
        linestyle=DASHES[index],
        marker=MARKERS[index],
        capsize=2,
        elinewidth=0.8,
        label=name,
    )

"""The figure of labels: how many true labels the training images have."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from adagc.paper.canvas import COLOURS, in_style
from adagc.paper.figures.frame import panels
from adagc.paper.figures.reading import NothingToDrawError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results
    from adagc.training.views import View


@in_style
def draw_labels(several: Sequence[Results], view: View) -> Figure:
    """Draw the share of training images by number of true labels, one panel per set of images."""
    cardinalities = _cardinalities(several)
    if not cardinalities:
        raise NothingToDrawError(
            "no finished run has clean labels of its training images: train with --truth FILE"
        )
    titles = [
        f"{_title(names)}\nmean {_mean(counts):.2f}" for counts, names in cardinalities.items()
    ]
    lines = max(title.count("\n") for title in titles)
    made, axes = panels(titles, height=1.9 + 0.14 * lines, across=4, narrow=2, sharey=True)
    for ax, counts in zip(axes, cardinalities, strict=True):
        _draw(ax, counts)
    made.supxlabel("labels per image", fontsize=8)
    axes[0].set_ylabel("training images (%)")
    return made


def _cardinalities(several: Sequence[Results]) -> dict[tuple[int, ...], list[str]]:
    """The scenarios by their numbers of images with 0, 1, ... labels."""
    cardinalities: dict[tuple[int, ...], list[str]] = {}
    for results in several:
        if any(results.scenario in names for names in cardinalities.values()):
            continue
        for result in results.finished:
            labels = result.run.labels
            rates = None if labels is None else labels.flip_rates
            if rates is not None and rates.cardinality.sum():
                counts = tuple(rates.cardinality.tolist())
                cardinalities.setdefault(counts, []).append(results.scenario)
                break
    return cardinalities


def _title(names: Sequence[str]) -> str:
    """The title of a panel: the names of its scenarios, in lines of at most 26 characters."""
    return textwrap.fill(", ".join(names), 26, break_on_hyphens=False)


def _mean(counts: Sequence[int]) -> float:
    """The mean number of labels per image."""
    return sum(labels * images for labels, images in enumerate(counts)) / sum(counts)


def _draw(ax: Axes, counts: tuple[int, ...]) -> None:
    from matplotlib.ticker import MaxNLocator

    values = np.array(counts)
    present = np.flatnonzero(values)
    labels = np.arange(min(1, present[0]), present[-1] + 1)
    ax.bar(labels, 100 * values[labels] / values.sum(), width=0.8, color=COLOURS[0])
    ax.axvline(_mean(counts), color="black", linewidth=1, linestyle=(0, (4, 2)))
    ax.grid(visible=False, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))

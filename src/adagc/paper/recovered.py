"""The figure of recovered labels: precision and recall against confidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adagc.paper.canvas import COLOURS, DASHES, MARKERS, figure, in_style, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adagc.completion.quality import Quality


def draw(quality: Quality, stem: Path) -> tuple[Path, Path]:
    """Draw it to stem.pdf and stem.png; a suffix of these two in `stem` is left out."""
    if stem.suffix.lower() in (".pdf", ".png"):
        stem = stem.with_suffix("")
    return save(plot(quality), stem)


@in_style
def plot(quality: Quality) -> Figure:
    """The figure."""
    made, (axes,) = figure()
    lines = (
        ("precision: right ones among the recovered", quality.precisions),
        ("recall: recovered ones among the missing", quality.recalls),
    )
    for number, (name, values) in enumerate(lines):
        shown = [np.nan if value is None else 100 * value for value in values]
        axes.plot(
            quality.confidence,
            shown,
            label=name,
            color=COLOURS[number],
            linestyle=DASHES[number],
            marker=MARKERS[number],
        )
    axes.set_xlabel("confidence at least (%)")
    axes.set_ylabel("share of labels (%)")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1))  # both lines cross the whole field
    return made

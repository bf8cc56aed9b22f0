"""What all figures share: the house style, panels with letters, a legend above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from adagc.paper import canvas
from adagc.paper.canvas import COLOURS, COLUMN, DASHES, MARKERS, PAGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Handle = Any  # what matplotlib shows in a legend: an artist, or several in a container

GREY = "#666666"
MOST = 6  # lines that a reader can tell apart in one set of axes


def panels(
    titles: Sequence[str], *, height: float, across: int = 2, narrow: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """One set of axes per title, at most `across` side by side.

    Up to `narrow` of them fit into one column of a journal; more take the whole page.
    """
    columns = min(across, len(titles))
    rows = math.ceil(len(titles) / columns)
    width = COLUMN if columns <= narrow else PAGE
    made, axes = canvas.figure(width, height * rows, rows=rows, columns=columns, **options)
    for spare in axes[len(titles) :]:
        spare.remove()
    axes = axes[: len(titles)]
    for index, (title, ax) in enumerate(zip(titles, axes, strict=True)):
        ax.set_title(lettered(title, index, len(titles)))
    return made, axes


def lettered(title: str, index: int, of: int) -> str:
    """With a letter, for a text that points at one panel of several."""
    # No page holds more panels than the alphabet has letters.
    return f"({ascii_lowercase[index % 26]}) {title}" if of > 1 else title


def legend_above(made: Figure, entries: Mapping[str, Handle], *, title: str = "") -> None:
    """One legend for all panels, outside of them, in as many columns as fit."""
    for rows in range(1, len(entries) + 1):
        drawn = made.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper center",
            ncols=math.ceil(len(entries) / rows),
            title=title or None,
            title_fontsize=7,
            handlelength=2.8,
            columnspacing=1.2,
        )
        if drawn.get_window_extent().width <= made.bbox.width:
            break
        if rows < len(entries):
            drawn.remove()


def look(index: int) -> dict[str, Any]:
    """Colour, dash and marker of line number `index`; either of them alone tells six apart."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }

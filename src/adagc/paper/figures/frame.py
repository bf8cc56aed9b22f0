"""Parts that figures share: panels with letters, a legend above them, the look of lines."""

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

Handle = Any  # of a legend entry: a matplotlib artist, or a container of several

GREY = "#666666"
MOST = 6  # number of lines that a reader can tell apart in one panel


def panels(
    titles: Sequence[str], *, height: float, across: int = 2, narrow: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title.

    Args:
        titles: Titles of the panels; several panels also get letters.
        height: Height of a panel in inches.
        across: Largest number of panels side by side.
        narrow: Largest number of panels side by side for which the figure is as wide as a column
            of a journal; with more it is as wide as a page.
        options: Further arguments of `canvas.figure`.
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
    """The title with a letter, such as "(b) title", if there are several panels."""
    # There are never more panels on a page than letters in the alphabet.
    return f"({ascii_lowercase[index % 26]}) {title}" if of > 1 else title


def legend_above(made: Figure, entries: Mapping[str, Handle], *, title: str = "") -> None:
    """Draw one legend for all panels above them, in as many columns as fit."""
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
    """Colour, dashes and marker of line number `index`."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }

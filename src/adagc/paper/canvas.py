"""Style of all figures: widths of a journal, and colours that are safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from adagc.atomic import replacing
from adagc.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

# Okabe and Ito's palette without its yellow, which is too pale for lines on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Lines also differ in dashes and markers, so that they can be told apart in black and white.
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
COLUMN = 3.5  # width of a journal's column in inches
PAGE = 7.16  # width of a journal's page in inches

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType: text in PDF files can be selected and edited
}


def in_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function so that it draws in this style.

    Matplotlib reads sizes and widths when artists are made, so the style must be set all the time.
    """

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _style():
            return draw(*args, **kwargs)

    return styled


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise MissingExtraError("matplotlib, which draws figures,", "bench") from None
    with matplotlib.rc_context(_STYLE):
        yield


def figure(
    width: float = COLUMN, height: float = 2.4, *, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure of this size in inches, and its axes row by row."""
    with _style():
        from matplotlib.figure import Figure

        # Not made by pyplot, so there is no global state, no window and nothing to close.
        made = Figure(figsize=(width, height), layout="constrained")
        axes = made.subplots(rows, columns, squeeze=False, **options)
    return made, list(axes.ravel())


def save(made: Figure, stem: Path) -> tuple[Path, Path]:
    """Write stem.pdf and stem.png; if writing fails, neither file is changed."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = (stem.with_name(f"{stem.name}.pdf"), stem.with_name(f"{stem.name}.png"))
    with _style(), replacing(*paths) as files:
        # No date, so that the same data gives the same file.
        made.savefig(files[0], format="pdf", metadata={"CreationDate": None})
        made.savefig(files[1], format="png", dpi=_STYLE["savefig.dpi"])
    return paths

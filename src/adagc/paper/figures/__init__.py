"""Draws figures from the results of benchmarks and ablations.

A figure whose runs are missing is not drawn; an error message names the runs that it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adagc.errors import AdagcError, MissingExtraError, UsageError
from adagc.paper.canvas import save
from adagc.paper.figures.classes import draw_classes
from adagc.paper.figures.cost import draw_cost
from adagc.paper.figures.gap import draw_gap
from adagc.paper.figures.histogram import draw_labels
from adagc.paper.figures.ranks import draw_ranks
from adagc.paper.figures.reading import NothingToDrawError
from adagc.paper.figures.trends import draw_smoothness, draw_trends
from adagc.paper.figures.variants import draw_by_label, draw_pseudo_labels, draw_triggers
from adagc.progress import tracked
from adagc.suggest import hint_or_list
from adagc.training.views import DEFAULT, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adagc.bench.results import Results

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Drawing:
    """One kind of figure."""

    about: str  # what it shows, in one line
    draw: Callable[[Sequence[Results], View], Figure]


FIGURES: dict[str, Drawing] = {
    "labels": Drawing("true labels per training image, by scenario", draw_labels),
    "trends": Drawing(
        "noisy and clean validation mAP of AdaGC's student and teacher (band: lowest to highest"
        " seed)",
        draw_trends,
    ),
    "smoothness": Drawing(
        "noisy validation mAP of AN and of its averaged copy, to compare how smooth they are",
        draw_smoothness,
    ),
    "triggers": Drawing(
        "validation of AdaGC's teacher for every trigger (bar: where calibration starts)",
        draw_triggers,
    ),
    "pseudo-labels": Drawing(
        "quality of AdaGC's pseudo-labels and its validation, for every way to make them",
        draw_pseudo_labels,
    ),
    "gap": Drawing(
        "share of the mAP gap between AN and GT w/ BCE that methods close, all in the same view"
        " (bar: deviation over seeds)",
        draw_gap,
    ),
    "classes": Drawing(
        "average precision of classes by flip rate, for a few methods", draw_classes
    ),
    "ranks": Drawing(
        "critical-difference diagram of all methods but those that train with clean labels",
        draw_ranks,
    ),
    "cost": Drawing(
        "test mAP against CPU time of training relative to AN (bar: deviation over seeds)",
        draw_cost,
    ),
}


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is not in FIGURES."""
    for name in names:
        if name not in FIGURES:
            raise UsageError(f"there is no figure {name!r}{hint_or_list(name, FIGURES, 'figures')}")


def draw_all(
    scenario_results: Sequence[Results],
    out: Path,
    only: set[str] | None = None,
    *,
    view: View = DEFAULT,
) -> dict[str, tuple[Path, Path] | str]:
    """Draw all figures that these results allow, into out/<name>.pdf and out/<name>.png.

    Args:
        scenario_results: Results of any number of benchmarks and ablations.
        out: Folder for the files.
        only: Names of the figures to draw; all by default.
        view: Which network's test scores are shown, after which epoch, as in tables.

    Returns:
        For each figure the paths of its files, or one line that says why it was not drawn.
    """
    check_names(sorted(only or ()))
    chosen = [name for name in FIGURES if only is None or name in only]
    return {
        name: _draw(FIGURES[name], scenario_results, view, out / name)
        for name in tracked(chosen, "drawing figures")
    }


def _draw(
    drawing: Drawing, several: Sequence[Results], view: View, stem: Path
) -> tuple[Path, Path] | str:
    try:
        return save(drawing.draw(several, view), stem)
    except MissingExtraError:
        raise  # no figure can be drawn without it
    except AdagcError as error:
        return str(error)
    except (LookupError, TypeError, ValueError) as error:
        # A file of a run has unexpected content; other figures may not need that file.
        log.debug("%s", drawing.about, exc_info=True)
        return f"a file of a run has unexpected content ({type(error).__name__}: {error})"


__all__ = [
    "FIGURES",
    "Drawing",
    "NothingToDrawError",
    "check_names",
    "draw_all",
    "draw_by_label",
]

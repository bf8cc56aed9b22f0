"""Figures from run folders: each is a function of results, and says so when they do not suffice."""

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
from adagc.paper.figures.reading import NothingToDrawError, Reading
from adagc.paper.figures.trends import draw_smoothness, draw_trends
from adagc.paper.figures.variants import draw_by_label, draw_pseudo_labels, draw_triggers
from adagc.suggest import hint_or_list
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adagc.bench.results import Choice, Results

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Drawing:
    """One figure that can be drawn."""

    about: str
    draw: Callable[[Sequence[Results], Reading], Figure]


FIGURES: dict[str, Drawing] = {
    "labels": Drawing("true labels per training image, by scenario", draw_labels),
    "trends": Drawing(
        "noisy and clean validation mAP of AdaGC's student and teacher (band: lowest to highest"
        " seed)",
        draw_trends,
    ),
    "smoothness": Drawing(
        "noisy validation mAP of AN and of its averaged copy, which a trigger could watch",
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
        "share of the mAP gap between AN and GT w/ BCE that methods close (bar: deviation over"
        " seeds)",
        draw_gap,
    ),
    "classes": Drawing(
        "average precision of classes by flip rate, for a few methods", draw_classes
    ),
    "ranks": Drawing("critical-difference diagram of all methods, bounds left out", draw_ranks),
    "cost": Drawing("test mAP against training time relative to AN (bar: deviation)", draw_cost),
}


def check_names(names: Iterable[str]) -> None:
    """Refuse a name that no figure has."""
    for name in names:
        if name not in FIGURES:
            raise UsageError(f"there is no figure {name!r}{hint_or_list(name, FIGURES, 'figures')}")


def draw_all(
    scenario_results: Sequence[Results],
    out: Path,
    only: set[str] | None = None,
    *,
    role: NetworkRole = NetworkRole.DEPLOYED,
    choice: Choice = "last",
) -> dict[str, tuple[Path, Path] | str]:
    """Draw what these results allow into out/<name>.pdf and .png; for the rest, one line why not.

    Args:
        scenario_results: Of benchmarks, ablations or both, in any number.
        out: Folder for the files.
        only: Names of figures; all by default.
        role: Which of a run's networks is judged on the test images, as in tables.
        choice: At its last epoch or at the one with the best noisy validation.
    """
    check_names(sorted(only or ()))
    reading = Reading(role, choice)
    return {
        name: _draw(drawing, scenario_results, reading, out / name)
        for name, drawing in FIGURES.items()
        if only is None or name in only
    }


def _draw(
    drawing: Drawing, several: Sequence[Results], reading: Reading, stem: Path
) -> tuple[Path, Path] | str:
    try:
        return save(drawing.draw(several, reading), stem)
    except MissingExtraError:
        raise  # it would be the reason for every figure
    except AdagcError as error:
        return str(error)
    except (LookupError, TypeError, ValueError) as error:
        # A file of a run that holds something else than runs write; the others may be fine.
        log.debug("%s", drawing.about, exc_info=True)
        return f"a run folder holds something unexpected ({type(error).__name__}: {error})"


__all__ = [
    "FIGURES",
    "Drawing",
    "NothingToDrawError",
    "Reading",
    "check_names",
    "draw_all",
    "draw_by_label",
]

"""What AdaGC's trigger sees and what it cannot see: noisy and clean validation over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adagc.bench.figures.curves import curve, draw_curve, trigger
from adagc.bench.figures.frame import GREY, Handle, in_style, legend_above, panels
from adagc.bench.figures.reading import FLOOR, OURS, NothingToDrawError, Reading, once

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Result, Results

_MAP = "mean_average_precision"
_NOISY, _CLEAN = ("noisy",), ("oracle", "validation")
Lines = Mapping[str, tuple[str, ...]]  # name in the legend -> keys in a line of the history

_TRENDS: Lines = {
    "student, clean": (*_CLEAN, "network", _MAP),
    "teacher, clean": (*_CLEAN, "teacher", _MAP),
    "student, noisy": (*_NOISY, "network", _MAP),
    "teacher, noisy": (*_NOISY, "teacher", _MAP),
}
_SMOOTHNESS: Lines = {
    "network": (*_NOISY, "network", _MAP),
    "averaged network": (*_NOISY, "averaged", _MAP),
}


@in_style
def draw_trends(several: Sequence[Results], reading: Reading) -> Figure:
    """Validation mAP of AdaGC's student and teacher on clean and on noisy labels."""
    return _draw(once(several, OURS), OURS, _TRENDS, "validation mAP (%)")


@in_style
def draw_smoothness(several: Sequence[Results], reading: Reading) -> Figure:
    """Noisy validation mAP of AN and of its averaged copy: what a trigger could watch."""
    return _draw(once(several, FLOOR), FLOOR, _SMOOTHNESS, "noisy validation mAP (%)")


def _draw(runs: Mapping[str, Sequence[Result]], title: str, lines: Lines, axis: str) -> Figure:
    if not runs:
        raise NothingToDrawError(
            f"no finished run of {title}: adagc bench SCENARIO --methods {title}"
        )
    made, axes = panels(list(runs), height=2.5, across=2)
    entries: dict[str, Handle] = {}
    for ax, several in zip(axes, runs.values(), strict=True):
        histories = [result.run.history for result in several]
        for index, (name, keys) in enumerate(lines.items()):
            shown = curve(histories, *keys)
            if shown is not None:
                entries.setdefault(name, draw_curve(ax, shown, index, len(lines)))
        entries |= _mark(ax, [trigger(history) for history in histories])
        ax.set_xlabel("epoch")
        ax.set_ylabel(axis)
    if not entries:
        raise NothingToDrawError(
            f"the histories of {title} hold no such validation scores: train with --average or"
            " --oracle true"
        )
    legend_above(made, entries)
    return made


def _mark(ax: Axes, epochs: Sequence[int | None]) -> dict[str, Handle]:
    """A vertical line where calibration starts, for every seed."""
    found: dict[str, Handle] = {}
    for epoch in sorted({epoch for epoch in epochs if epoch is not None}):
        line = ax.axvline(epoch, color=GREY, linewidth=0.9, zorder=1)
        found = {"calibration starts": line}
    return found

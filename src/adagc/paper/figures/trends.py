"""Figures of trends: validation mAP over epochs on noisy labels, which training sees, and clean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adagc.paper.canvas import in_style
from adagc.paper.figures.curves import (
    Curve,
    Quantity,
    clean_map,
    curve,
    draw_curve,
    noisy_map,
    starts,
)
from adagc.paper.figures.frame import GREY, Handle, legend_above, panels
from adagc.paper.figures.reading import FLOOR, OURS, NothingToDrawError, once
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adagc.bench.results import Result, Results
    from adagc.training.views import View

Lines = Mapping[str, Quantity]  # by their names in the legend

_TRENDS: Lines = {
    "student, clean": clean_map(NetworkRole.DEPLOYED),
    "teacher, clean": clean_map(NetworkRole.TEACHER),
    "student, noisy": noisy_map(NetworkRole.DEPLOYED),
    "teacher, noisy": noisy_map(NetworkRole.TEACHER),
}
_SMOOTHNESS: Lines = {
    "network": noisy_map(NetworkRole.DEPLOYED),
    "averaged network": noisy_map(NetworkRole.AVERAGE),
}


@in_style
def draw_trends(several: Sequence[Results], view: View) -> Figure:
    """Draw the validation mAP of AdaGC's student and teacher on clean and on noisy labels."""
    return _draw(once(several, OURS), OURS, _TRENDS, "validation mAP (%)")


@in_style
def draw_smoothness(several: Sequence[Results], view: View) -> Figure:
    """Draw the noisy validation mAP of AN and of its averaged copy.

    It shows which of them is smooth enough for a trigger to decide by.
    """
    runs = once(several, FLOOR)
    return _draw(runs, FLOOR, _SMOOTHNESS, "noisy validation mAP (%)", every_seed=True)


def _draw(
    runs: Mapping[str, Sequence[Result]],
    title: str,
    lines: Lines,
    axis: str,
    *,
    every_seed: bool = False,
) -> Figure:
    if not runs:
        raise NothingToDrawError(
            f"no finished run of {title}: adagc bench SCENARIO --methods {title}"
        )
    read = {scenario: _read(one, lines) for scenario, one in runs.items()}
    least = list(lines)[-1]  # the line that a figure cannot do without
    shown = {scenario: curves for scenario, curves in read.items() if least in curves}
    if not shown:
        raise NothingToDrawError(
            f"the histories of {title} have no {least!r}: train with --average 0.999"
        )
    made, axes = panels(list(shown), height=2.5, across=2)
    entries: dict[str, Handle] = {}
    for ax, (scenario, curves) in zip(axes, shown.items(), strict=True):
        for index, name in enumerate(lines):
            if name in curves:
                entries[name] = draw_curve(
                    ax, curves[name], index, len(lines), every_seed=every_seed
                )
        for epoch in starts(result.run.history for result in runs[scenario]):
            mark = ax.axvline(epoch, color=GREY, linewidth=0.9, zorder=1)
            entries["calibration starts"] = mark
        ax.set_xlabel("epoch")
        ax.set_ylabel(axis)
    legend_above(made, entries)
    return made


def _read(runs: Sequence[Result], lines: Lines) -> dict[str, Curve]:
    """The curves of those lines of which the histories have values."""
    histories = [result.run.history for result in runs]
    curves = {name: curve(histories, quantity) for name, quantity in lines.items()}
    return {name: shown for name, shown in curves.items() if shown is not None}

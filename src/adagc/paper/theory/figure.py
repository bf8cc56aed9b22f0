"""The figure of a theory check: mAP over epochs, AP of every class, and the assumption about α."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adagc.paper import canvas
from adagc.paper.canvas import COLOURS, DASHES, MARKERS, PAGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.paper.theory.measure import Floats, Theory

_NOISY, _SECOND, _FIRST, _ALPHA, _, _RECALL, _CLEAN = COLOURS
_PROPOSED = (_FIRST, _SECOND)  # colours of Propositions 1 and 2
_THICK, _THIN = 1.8, 0.8  # points


@canvas.in_style
def draw(theory: Theory) -> Figure:
    """Draw three panels as wide as a page; `canvas.save` writes the figure."""
    made, (over_epochs, per_class, assumption) = canvas.figure(
        PAGE, 3.0, columns=3, width_ratios=(1.45, 1, 1)
    )
    _draw_maps(over_epochs, theory)
    _draw_classes(per_class, theory)
    _draw_assumption(assumption, theory)
    handles, names = over_epochs.get_legend_handles_labels()
    made.legend(handles, names, loc="outside lower center", ncols=4, handlelength=2.6)
    return made


def _draw_maps(axes: Axes, theory: Theory) -> None:
    """Measured clean and noisy mAP, and the noisy mAP that the propositions predict."""
    _mark_trigger(axes, theory)
    # This order gives the columns of the legend: measured, Proposition 1, Proposition 2, the rest.
    _curve(axes, theory, theory.clean, _CLEAN, label="clean mAP", linewidth=_THICK)
    _curve(axes, theory, theory.noisy, _NOISY, label="noisy mAP", linewidth=_THICK)
    pairs = zip(theory.propositions, _PROPOSED, strict=True)
    for number, (proposition, colour) in enumerate(pairs, start=1):
        name, top = f"Proposition {number}", 100 * float(proposition.full.max())
        beyond = f" (off the scale, up to {top:.0f})" if top > 100 else ""
        _curve(axes, theory, proposition.full, colour, label=name + beyond)
        _curve(axes, theory, proposition.plain, colour, DASHES[1], label=f"{name} without Cov")
    low = 100 * theory.propositions[0].full
    axes.fill_between(
        theory.epochs,
        low,
        low + 100 * theory.allowance,
        color=_FIRST,
        alpha=0.15,
        linewidth=0,
        label="bias with few images",
    )
    star: dict[str, Any] = {"marker": "*", "markersize": 10, "linestyle": "none", "zorder": 5}
    for label, epoch, values, colour in (
        ("peaks", theory.peaks.clean, theory.clean, _CLEAN),
        ("_noisy peak", theory.peaks.noisy, theory.noisy, _NOISY),
    ):
        at = 100 * values[theory.epochs.index(epoch)]
        axes.plot([epoch], [at], color=colour, markeredgecolor="white", label=label, **star)
    curves = [theory.clean, theory.noisy, *(p.full for p in theory.propositions)]
    # The weights 1 / (1 - β) can lead far above 100, but the axis ends there.
    axes.set_ylim(0, min(100.0, 108 * max(float(values.max()) for values in curves)))
    axes.set_title("(a) mAP over epochs", loc="left")
    _name_epochs(axes)
    axes.set_ylabel("validation mAP, %")


def _draw_classes(axes: Axes, theory: Theory) -> None:
    """Predicted and observed AP of every class at the clean peak; on the diagonal both agree."""
    i = theory.epochs.index(theory.peaks.clean)
    observed = 100 * theory.noisy_ap[i]
    top = 100.0
    outside = 0
    pairs = zip(theory.propositions, _PROPOSED, strict=True)
    for number, (proposition, colour) in enumerate(pairs, start=1):
        predicted = 100 * proposition.classes[i]
        outside += int((predicted > top).sum())
        axes.plot(
            np.minimum(predicted, top),
            observed,
            linestyle="none",
            marker=MARKERS[number - 1],
            markersize=4.5,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.4,
            clip_on=False,
            zorder=3,
            label=f"Proposition {number}",
        )
    axes.plot([0, top], [0, top], color="#777777", linewidth=_THIN, zorder=1)
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_title(f"(b) classes in epoch {theory.peaks.clean}", loc="left")
    axes.set_xlabel("predicted noisy AP, %" + (f" ({outside} above 100)" if outside else ""))
    axes.set_ylabel("observed noisy AP, %")
    axes.legend(loc="best", handletextpad=0.2)


def _draw_assumption(axes: Axes, theory: Theory) -> None:
    """Recall and α: Proposition 1 assumes that they are equal, Proposition 2 that α is 0."""
    _mark_trigger(axes, theory, named=False)
    _curve(axes, theory, theory.mean_recall, _RECALL, label="of all (clean recall)")
    _curve(axes, theory, theory.mean_alpha, _ALPHA, DASHES[1], label="of the unobserved (α)")
    axes.set_ylim(0, 100)
    axes.set_title("(c) positives predicted at 0.5", loc="left")
    _name_epochs(axes)
    axes.set_ylabel("share of positives, %")
    # A white background, so that the line of the trigger does not cross the text.
    axes.legend(loc="upper left", handlelength=1.6, frameon=True, edgecolor="none", framealpha=1)


def _name_epochs(axes: Axes) -> None:
    axes.set_xlabel("epoch")
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)  # epochs are whole numbers


def _curve(
    axes: Axes, theory: Theory, values: Floats, colour: str, dashes: Any = "-", **options: Any
) -> None:
    # A single epoch needs a marker, because a line through one point is invisible.
    marker = MARKERS[0] if len(theory.epochs) == 1 else None
    options = {"color": colour, "linestyle": dashes, "marker": marker, **options}
    axes.plot(theory.epochs, 100 * values, **options)


def _mark_trigger(axes: Axes, theory: Theory, *, named: bool = True) -> None:
    if theory.trigger is None:
        return
    axes.axvline(theory.trigger, color="#777777", linewidth=_THIN, linestyle=DASHES[2], zorder=1)
    if not named:
        return
    axes.annotate(
        "trigger",
        (theory.trigger, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3, -3),
        textcoords="offset points",
        fontsize=7,
        color="#555555",
        va="top",
    )

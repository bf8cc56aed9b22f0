"""The same method with one thing changed: curves by row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adagc.bench.canvas import PAGE, figure
from adagc.bench.figures.curves import curve, draw_curve, trigger
from adagc.bench.figures.frame import MOST, Handle, in_style, legend_above, lettered
from adagc.bench.figures.reading import OURS, NothingToDrawError, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results

Quantities = Mapping[str, tuple[str, ...]]  # heading -> keys in a line of the history

VALIDATION: Quantities = {
    "validation mAP": ("oracle", "validation", "teacher", "mean_average_precision"),
    "validation mF1": ("oracle", "validation", "teacher", "mean_f1"),
}
PSEUDO_LABELS: Quantities = {
    "pseudo-labels: mAP": ("oracle", "pseudo_labels", "mean_average_precision"),
    # Over entries that nobody looked at, all classes together; histories hold no mean over them.
    "pseudo-labels: F1": ("oracle", "pseudo_labels", "f1"),
    **VALIDATION,
}
TRIGGER_OPTIONS = frozenset({"trigger_epoch", "force_trigger", "minimum_warm_up", "restore"})
PSEUDO_LABEL_OPTIONS = frozenset({"pseudo_labels"})


@in_style
def draw_triggers(several: Sequence[Results], reading: Reading) -> Figure:
    """Validation of AdaGC's teacher for every way to start calibration."""
    return _draw_study(several, TRIGGER_OPTIONS, VALIDATION, "trigger")


@in_style
def draw_pseudo_labels(several: Sequence[Results], reading: Reading) -> Figure:
    """Quality of pseudo-labels and validation of the teacher for every way to make them."""
    return _draw_study(several, PSEUDO_LABEL_OPTIONS, PSEUDO_LABELS, "pseudo-labels")


def _draw_study(
    several: Sequence[Results], options: frozenset[str], quantities: Quantities, study: str
) -> Figure:
    found: dict[str, tuple[Results, list[str]]] = {}
    for results in several:
        labels = variants(results, options)
        if labels:
            found.setdefault(results.scenario, (results, labels))
    if not found:
        raise NothingToDrawError(
            f"no two finished variants of AdaGC that differ in nothing else: adagc ablate SCENARIO"
            f" --studies {study}"
        )
    return draw_by_label(list(found.values()), quantities)


def variants(results: Results, options: frozenset[str]) -> list[str]:
    """The largest group of AdaGC's finished rows that differ in these options and nothing else."""
    groups: dict[str, dict[str, str]] = {}
    for label in results.labels:
        told = next(job.options for job in results.jobs if job.label == label)
        if results.method(label) != OURS or not results.of(label):
            continue
        rest = {key: value for key, value in told.items() if key not in options}
        own = {key: value for key, value in told.items() if key in options}
        # Two rows that were told the same are one variant.
        same = groups.setdefault(json.dumps(rest, sort_keys=True), {})
        same.setdefault(json.dumps(own, sort_keys=True), label)
    largest = max(groups.values(), key=len, default={})
    return list(largest.values()) if len(largest) > 1 else []


@in_style
def draw_by_label(
    rows: Sequence[tuple[Results, Sequence[str]]], quantities: Quantities = VALIDATION
) -> Figure:
    """Curves by label: a row of panels for every scenario, a panel for every quantity.

    Labels may be named by any rows of results; of more than six the first six are drawn.
    """
    columns = len(quantities)
    made, axes = figure(PAGE, 2.1 * len(rows) + 0.3, rows=len(rows), columns=columns)
    names = list(dict.fromkeys(label for _, labels in rows for label in labels))
    entries: dict[str, Handle] = {}
    for row, (results, labels) in enumerate(rows):
        line = axes[row * columns : (row + 1) * columns]
        for label in labels:
            index = names.index(label)
            if index < MOST:
                drawn = _draw_label(line, results, label, quantities, index, len(names))
                entries = {label: drawn, **entries} if drawn is not None else entries
        line[0].set_ylabel(f"{results.scenario} (%)")
        for column, (ax, heading) in enumerate(zip(line, quantities, strict=True)):
            ax.set_title(lettered(heading, row * columns + column, len(axes)))
            ax.set_xlabel("epoch" if row == len(rows) - 1 else "")
    if not entries:
        raise NothingToDrawError(
            "the histories hold no clean validation scores: train with --oracle true"
        )
    left_out = f"the first {MOST} of {len(names)} variants" if len(names) > MOST else ""
    shown = {name: entries[name] for name in names if name in entries}
    legend_above(made, shown, title=left_out)
    return made


def _draw_label(
    axes: Sequence[Axes],
    results: Results,
    label: str,
    quantities: Quantities,
    index: int,
    of: int,
) -> Handle | None:
    """One variant in all panels of its row; a bar across the line where calibration starts."""
    histories = [result.run.history for result in results.of(label)]
    starts = [at for at in map(trigger, histories) if at is not None]
    drawn = None
    for ax, keys in zip(axes, quantities.values(), strict=True):
        shown = curve(histories, *keys)
        if shown is None:
            continue
        drawn = draw_curve(ax, shown, index, of)
        values = dict(zip(shown.epochs.tolist(), shown.mean.tolist(), strict=True))
        for at in sorted(set(starts) & values.keys()):
            ax.plot(at, values[at], "|", color=drawn.get_color(), markersize=9, zorder=3)
    return drawn

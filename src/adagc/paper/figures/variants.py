"""Figures of ablations: curves of several variants of one method."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adagc.paper.canvas import PAGE, figure, in_style
from adagc.paper.figures.curves import Curve, Quantity, clean_map, curve, draw_curve, starts
from adagc.paper.figures.frame import MOST, Handle, legend_above, lettered
from adagc.paper.figures.reading import OURS, NothingToDrawError
from adagc.training.records import EpochRecord, PseudoLabelQuality
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adagc.bench.results import Results
    from adagc.training.views import View

Quantities = Mapping[str, Quantity]  # by their headings


def _clean_f1(line: EpochRecord) -> float | None:
    scores = line.clean_of(NetworkRole.TEACHER)
    return None if scores is None else scores.mean_f1


def _quality(line: EpochRecord) -> PseudoLabelQuality | None:
    return None if line.oracle is None else line.oracle.pseudo_labels


def _pseudo_map(line: EpochRecord) -> float | None:
    return None if (quality := _quality(line)) is None else quality.mean_average_precision


def _pseudo_f1(line: EpochRecord) -> float | None:
    """F1 over the unobserved entries of all classes together, not a mean over classes."""
    return None if (quality := _quality(line)) is None else quality.f1


VALIDATION: Quantities = {
    "validation mAP": clean_map(NetworkRole.TEACHER),
    "validation mF1": _clean_f1,
}
PSEUDO_LABELS: Quantities = {
    "pseudo-labels: mAP": _pseudo_map,
    "pseudo-labels: F1": _pseudo_f1,
    **VALIDATION,
}
TRIGGER_OPTIONS = frozenset({"trigger_epoch", "force_trigger", "minimum_warm_up", "restore"})
PSEUDO_LABEL_OPTIONS = frozenset({"pseudo_labels"})


@in_style
def draw_triggers(several: Sequence[Results], view: View) -> Figure:
    """Draw the validation scores of AdaGC's teacher for every way to start calibration."""
    return _draw_study(several, TRIGGER_OPTIONS, VALIDATION, "trigger")


@in_style
def draw_pseudo_labels(several: Sequence[Results], view: View) -> Figure:
    """Draw the quality of pseudo-labels and the teacher's validation, for every way to make them.

    The ways differ in which networks the pseudo-labels are made from.
    """
    return _draw_study(several, PSEUDO_LABEL_OPTIONS, PSEUDO_LABELS, "pseudo-labels")


def _draw_study(
    several: Sequence[Results], options: frozenset[str], quantities: Quantities, study: str
) -> Figure:
    scenarios: dict[str, tuple[Results, list[str]]] = {}
    for results in several:
        labels = variants(results, options)
        if labels:
            scenarios.setdefault(results.scenario, (results, labels))
    if not scenarios:
        raise NothingToDrawError(
            f"no two finished variants of AdaGC that differ only in {' or '.join(sorted(options))}:"
            f" adagc ablate SCENARIO --studies {study}"
        )
    return draw_by_label(list(scenarios.values()), quantities)


def variants(results: Results, options: frozenset[str]) -> list[str]:
    """The largest group of AdaGC's finished rows that differ in these options and nothing else."""
    groups: dict[str, dict[str, str]] = {}
    for label in results.labels:
        values = next(job.options for job in results.jobs if job.label == label)
        if results.method(label) != OURS or not results.of(label):
            continue
        rest = {key: value for key, value in values.items() if key not in options}
        own = {key: value for key, value in values.items() if key in options}
        # Two rows with the same options are one variant.
        same = groups.setdefault(json.dumps(rest, sort_keys=True), {})
        same.setdefault(json.dumps(own, sort_keys=True), label)
    largest = max(groups.values(), key=len, default={})
    return list(largest.values()) if len(largest) > 1 else []


@in_style
def draw_by_label(
    rows: Sequence[tuple[Results, Sequence[str]]], quantities: Quantities = VALIDATION
) -> Figure:
    """Draw a curve per row of the results, in one row of panels per scenario.

    A small bar across a line marks where calibration started. Of more than six labels the first
    six are drawn.

    Args:
        rows: For each scenario its results and the labels of the rows to draw.
        quantities: What to draw, one panel each.
    """
    read = [(results.scenario, _read(results, labels, quantities)) for results, labels in rows]
    read = [(scenario, by_label) for scenario, by_label in read if by_label]
    if not read:
        raise NothingToDrawError(
            "the histories have no clean validation scores: train with --oracle true"
        )
    names = list(dict.fromkeys(label for _, by_label in read for label in by_label))
    columns = len(quantities)
    made, axes = figure(PAGE, 2.1 * len(read) + 0.3, rows=len(read), columns=columns)
    entries: dict[str, Handle] = {}
    for row, (scenario, by_label) in enumerate(read):
        line = axes[row * columns : (row + 1) * columns]
        for index, name in enumerate(names[:MOST]):
            for ax, heading in zip(line, quantities, strict=True):
                if name in by_label and heading in by_label[name].curves:
                    entries[name] = _draw(ax, by_label[name], heading, index, len(names))
        line[0].set_ylabel(f"{scenario} (%)")
        for column, (ax, heading) in enumerate(zip(line, quantities, strict=True)):
            ax.set_title(lettered(heading, row * columns + column, len(axes)))
            ax.set_xlabel("epoch" if row == len(read) - 1 else "")
    left_out = f"the first {MOST} of {len(names)} variants" if len(names) > MOST else ""
    legend_above(made, {name: entries[name] for name in names[:MOST]}, title=left_out)
    return made


@dataclass(frozen=True)
class _Variant:
    curves: Mapping[str, Curve]  # by heading
    starts: Sequence[int]  # epochs after which calibration started


def _read(results: Results, labels: Sequence[str], quantities: Quantities) -> dict[str, _Variant]:
    """The variants, by label, whose histories have values of any of the quantities."""
    read = {}
    for label in labels:
        histories = [result.run.history for result in results.of(label)]
        curves = {heading: curve(histories, quantity) for heading, quantity in quantities.items()}
        known = {heading: shown for heading, shown in curves.items() if shown is not None}
        if known:
            read[label] = _Variant(known, starts(histories))
    return read


def _draw(ax: Axes, variant: _Variant, heading: str, index: int, of: int) -> Handle:
    shown = variant.curves[heading]
    drawn = draw_curve(ax, shown, index, of)
    values = dict(zip(shown.epochs.tolist(), shown.mean.tolist(), strict=True))
    for at in variant.starts:
        if at in values:
            ax.plot(at, values[at], "|", color=drawn.get_color(), markersize=9, zorder=3)
    return drawn

"""The result in plain words.

Always the deployed network after the last epoch, whichever row of the table happens to be best: a
sentence that picks its number on the test set would be a lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from adagc.datasets.registry import DEFAULT, find, names
from adagc.report.html import listed
from adagc.report.record import Record


def data_name(record: Record) -> str:
    """The data set in a few words; of a path its last part only."""
    kind, root = record.settings.data or DEFAULT, record.settings["root"]
    if kind not in names():
        return kind  # of a package that is not installed here
    entry = find(kind)
    return Path(root).name if root and entry.named_by_root else entry.title


def supervision(record: Record) -> str:
    """What was shown of the labels: "one label per image"."""
    if record.clean:
        return "all true labels of every image"
    if record.labels is None or not record.labels.images.train:
        return "the observed labels"
    images, seen = record.labels.images.train, sum(record.labels.observed_counts)
    return "one label per image" if seen == images else f"{seen / images:.1f} labels per image"


def headline(record: Record) -> str:
    """One sentence on this run alone."""
    if record.scores is not None and record.final is not None:
        return (
            f"{record.method} reaches {100 * record.final.mean_average_precision:.1f} mAP on"
            f" {record.scores.images:,} test images after seeing {supervision(record)}."
        )
    if not record.history:
        return f"{record.method} has not finished its first epoch yet."
    last = record.history[-1]
    noisy = 100 * last.noisy[last.deployed].mean_average_precision
    if not record.run.finished:
        return (
            f"{record.method} is at epoch {last.epoch} of {record.epochs}:"
            f" {noisy:.1f} mAP on the observed validation labels so far."
        )
    images = 0 if record.labels is None else record.labels.images.val
    where = f"{images:,} validation images" if images else "the validation images"
    return (
        f"{record.method} reaches {noisy:.1f} mAP against the observed labels of {where}"
        f" after seeing {supervision(record)}."
    )


def comparison(record: Record, others: Sequence[Record]) -> str:
    """How it stands among runs tested on the same images; empty without any."""
    if record.final is None:
        return ""
    means: dict[str, list[float]] = {}
    bounds: list[float] = []
    for other in others:
        if other.final is not None and record.same_test(other):
            value = 100 * other.final.mean_average_precision
            bounds.append(value) if other.clean else means.setdefault(other.method, []).append(
                value
            )
    said = [f"{name} {fmean(values):.1f}{_of(values)}" for name, values in means.items()]
    if bounds:
        said.append(f"clean labels {fmean(bounds):.1f}{_of(bounds)}")
    if not said:
        return ""
    mine = 100 * record.final.mean_average_precision
    return f"Compared with {', '.join(said)}{_gap(record, mine, means.get('AN'), bounds)}."


def _of(values: Sequence[float]) -> str:
    return f" (mean of {len(values)} runs)" if len(values) > 1 else ""


def _gap(
    record: Record, mine: float, naive: Sequence[float] | None, bounds: Sequence[float]
) -> str:
    """Share of the way from assuming negatives to clean labels."""
    if not naive or not bounds or record.clean or record.method == "AN":
        return ""
    low, high = fmean(naive), fmean(bounds)
    if high <= low:
        return ""
    if mine < low:
        return f": {low - mine:.1f} points below AN"
    return f": {100 * (mine - low) / (high - low):.0f} % of the gap closed"


def caveats(record: Record, others: Sequence[Record]) -> list[str]:
    """What keeps the compared runs from being the same but for the method."""
    found = []
    for other in others:
        name = f"{other.method} ({other.run.folder.name})"
        if other.final is None:
            found.append(f"{name} has no test scores and is left out.")
            continue
        if not record.same_test(other):
            found.append(f"{name} was tested on other images or classes: do not compare.")
            continue
        differences = record.differences(other)
        if differences:
            found.append(f"{name} differs in {listed(differences)}.")
    return found

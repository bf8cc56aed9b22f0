"""The result of a run in words.

The headline is always that of the deployed network after the last epoch, even if another row of the
table is better: choosing the best number on the test set would overstate the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from adagc.datasets.registry import DEFAULT, find, names
from adagc.report.html import listed
from adagc.report.record import Record
from adagc.training import views
from adagc.types import NetworkRole, with_role


def data_name(record: Record) -> str:
    """The title of the data set, or the last part of its path for data of one's own."""
    kind, root = record.settings.data or DEFAULT, record.settings["root"]
    if kind not in names():
        return kind  # registered by a plug-in that is not loaded here
    entry = find(kind)
    return Path(root).name if root and entry.named_by_root else entry.title


def supervision(record: Record) -> str:
    """Which labels training used, in a few words, such as "one label per image"."""
    if record.clean:
        return "all true labels of every image"
    if record.labels is None or not record.labels.images.train:
        return "the observed labels"
    images, seen = record.labels.images.train, sum(record.labels.observed_counts)
    return "one label per image" if seen == images else f"{seen / images:.1f} labels per image"


def headline(record: Record) -> str:
    """One sentence with the main score of this run."""
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
    """The scores of other runs tested on the same images, in a sentence or two; empty without any.

    Like is compared with like: trained networks with trained networks, and averages with averages,
    as far as the runs have them; first those among which the deployed network is, which the
    headline is about.
    """
    tested = {} if record.scores is None else record.scores.networks
    both = sorted(
        (views.VIEWS["network-last"], views.DEFAULT),
        key=lambda view: view.of(tested) != with_role(tested, NetworkRole.DEPLOYED),
    )
    sentences = (_compared(record, others, view) for view in both)
    return " ".join(filter(None, sentences))


def _compared(record: Record, others: Sequence[Record], view: views.View) -> str:
    """This run and others in one view; empty if there is nothing to compare with."""
    own = record.score(view)
    if own is None:
        return ""
    means: dict[str, list[float]] = {}
    bounds: list[float] = []
    for other in others:
        value = other.score(view)
        if value is not None and record.same_test(other):
            bounds.append(value) if other.clean else means.setdefault(other.method, []).append(
                value
            )
    parts = [f"{name} {fmean(values):.1f}{_of(values)}" for name, values in means.items()]
    if bounds:
        parts.append(f"clean labels {fmean(bounds):.1f}{_of(bounds)}")
    if not parts:
        return ""
    kind = f"{view.networks[0].upper()}{view.networks[1:]}"
    gap = _gap(record, own, means.get("AN"), bounds)
    return f"{kind}: {record.method} {own:.1f}, compared with {', '.join(parts)}{gap}."


def _of(values: Sequence[float]) -> str:
    return f" (mean of {len(values)} runs)" if len(values) > 1 else ""


def _gap(record: Record, own: float, naive: Sequence[float] | None, bounds: Sequence[float]) -> str:
    """How much of the difference between AN and training with clean labels this run makes up.

    AN takes unobserved labels for negatives, so it is the natural lower end. All three scores are
    of the same view.
    """
    if not naive or not bounds or record.clean or record.method == "AN":
        return ""
    low, high = fmean(naive), fmean(bounds)
    if high <= low:
        return ""
    if own < low:
        return f": {low - own:.1f} points below AN"
    return (
        f": {100 * (own - low) / (high - low):.0f} % of the gap between AN and clean labels closed"
    )


def caveats(record: Record, others: Sequence[Record]) -> list[str]:
    """One sentence for each compared run that differs from this one in more than the method."""
    sentences = []
    for other in others:
        name = f"{other.method} ({other.run.folder.name})"
        if other.final is None:
            sentences.append(f"{name} has no test scores and is left out.")
            continue
        if not record.same_test(other):
            sentences.append(f"{name} was tested on other images or classes: do not compare.")
            continue
        differences = record.differences(other)
        if differences:
            sentences.append(f"{name} differs in {listed(differences)}.")
    return sentences

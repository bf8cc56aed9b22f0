"""The sections of the page with curves over epochs: training, and pseudo-labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from adagc.report.charts import Annotations, Series, line_chart
from adagc.report.html import duration, esc, listed, section
from adagc.report.moments import Moment
from adagc.report.record import Record
from adagc.training.records import EpochRecord, Summary
from adagc.types import NetworkRole

_COLOUR = {
    NetworkRole.DEPLOYED: 0,
    NetworkRole.TEACHER: 1,
    NetworkRole.TRAINED: 2,
    NetworkRole.AVERAGE: 3,
    NetworkRole.OTHER: 4,
}
Scored = Callable[[EpochRecord], Mapping[str, Summary]]  # the scores of an epoch, by network


def training_curves(record: Record) -> str:
    """The section with noisy and clean validation mAP, the losses and the main events."""
    if not record.history:
        return ""
    epochs = _epochs(record)
    marks = _marks(record)
    charts = [
        line_chart(
            epochs,
            _maps(record, _noisy, dashed=False),
            title="Noisy validation mAP",
            caption="scored on the observed labels, the only ones that training uses",
            extra=marks,
        ),
        line_chart(
            epochs,
            _maps(record, _clean, dashed=True),
            title="Clean validation mAP",
            caption="scored on the true labels: recorded, never used for training",
            extra=marks,
        ),
        line_chart(
            epochs,
            _losses(record),
            title="Loss",
            caption="mean over the steps of an epoch",
            decimals=3,
            extra=marks,
        ),
    ]
    return section(
        "curves", "Training", f'<div class="charts">{"".join(charts)}{_story(record)}</div>'
    )


def pseudo_label_curves(record: Record) -> str:
    """The section on the quality of pseudo-labels; empty if the method has none."""
    quality = [
        None if line.oracle is None else line.oracle.pseudo_labels for line in record.history
    ]
    if not any(quality):
        return ""
    epochs = _epochs(record)
    marks = _marks(record)
    lines: Mapping[str, list[float | None]] = {
        "mAP": [None if one is None else 100 * one.mean_average_precision for one in quality],
        "precision": [None if one is None else 100 * one.precision for one in quality],
        "recall": [None if one is None else 100 * one.recall for one in quality],
        "F1": [None if one is None else 100 * one.f1 for one in quality],
    }
    added = [None if one is None else one.added_per_image for one in quality]
    first = line_chart(
        epochs,
        [Series(name, values, colour) for colour, (name, values) in enumerate(lines.items())],
        title="Quality of the pseudo-labels, %",
        caption="on training images; precision, recall and F1 of classes not observed, at 0.5",
        limit=100,
        extra=marks,
    )
    missing = _missing_per_image(record)
    level = None if missing is None else (missing, f"truly missing: {missing:.2f}")
    second = line_chart(
        epochs,
        [Series("added", added, 2)],
        title="Labels added per image",
        caption="pseudo-labels of at least 0.5 for classes that were not observed",
        decimals=2,
        extra=Annotations(marks.moments, marks.shaded_after, marks.back, level),
    )
    return section(
        "pseudo-labels",
        "Pseudo-labels",
        f'<div class="charts">{first}{second}</div>',
        lead="How well the labels that the method guesses for unobserved classes agree with the"
        " true labels. This is recorded and never used for training.",
    )


def _epochs(record: Record) -> list[int]:
    return [line.epoch for line in record.history]


def _story(record: Record) -> str:
    """The main events of the run as a list of sentences."""
    done = f"{len(record.history)} of {record.epochs} epochs" + (
        f", {duration(record.seconds / len(record.history))} each, validation included"
    )
    sentences = [esc(done)]
    if record.story.sentence:
        sentences.append(
            re.sub(r"(epoch) (\d+)", r"\1 <strong>\2</strong>", esc(record.story.sentence))
        )
    if record.story.second_stage_after is not None:
        sentences.append("The epochs of the second stage are shaded in the charts")
    for title, best, more in (
        ("noisy", _best(record, _noisy), ""),
        ("clean", _best(record, _clean), "; training does not use it"),
    ):
        if best:
            values = [f"{name} {top:.1f} (epoch {when})" for name, (top, when) in best.items()]
            sentences.append(esc(f"Best {title} mAP: {listed(values)}{more}"))
    if record.twin is not None:
        one, other = map(record.shown, record.twin)
        sentences.append(esc(f"The {one} network equals the {other} here and is shown only once"))
    items = "".join(f"<li>{text}.</li>" for text in sentences)
    return f'<div class="chart story"><strong>What happened</strong><ul>{items}</ul></div>'


def _noisy(line: EpochRecord) -> Mapping[str, Summary]:
    return line.noisy


def _clean(line: EpochRecord) -> Mapping[str, Summary]:
    return {} if line.oracle is None else line.oracle.validation


def _best(record: Record, scored: Scored) -> dict[str, tuple[float, int]]:
    """Highest mAP of each network and the first epoch that had it."""
    best: dict[str, tuple[float, int]] = {}
    for line in record.history:
        for name, scores in scored(line).items():
            value, shown = 100 * scores.mean_average_precision, record.shown(name)
            if name in record.networks and value > best.get(shown, (-1.0, 0))[0]:
                best[shown] = value, line.epoch
    return best


def _marks(record: Record) -> Annotations:
    """The events that every chart marks, as the method describes them."""
    story = record.story
    moments = [Moment(one.epoch, one.text, one.strong) for one in story.milestones]
    return Annotations(moments, shaded_after=story.second_stage_after, back=story.back)


def _maps(record: Record, scored: Scored, *, dashed: bool) -> list[Series]:
    """One line of mAP in per cent for every network."""
    lines = [scored(line) for line in record.history]
    return [
        Series(
            record.shown(name),
            [100 * line[name].mean_average_precision if name in line else None for line in lines],
            _COLOUR[record.roles[name].role],
            dashed=dashed,
        )
        for name in record.networks
        if any(name in line for line in lines)
    ]


def _losses(record: Record) -> list[Series]:
    """One line for every part of the loss, and one for their sum."""
    names: dict[str, None] = {}  # used as an ordered set
    for line in record.history:
        names.update(dict.fromkeys(line.losses))
    series = {name: [line.losses.get(name) for line in record.history] for name in names}
    parts = [name for name in series if name != "total"]
    if len(parts) == 1 and series[parts[0]] == series.get("total"):
        del series["total"]  # the sum of a single part is the part itself
    order = {"total": 5} | {name: i for i, name in enumerate(parts)}
    return [
        Series(name.replace("_", " "), values, order[name] % 6, dashed=name == "total")
        for name, values in series.items()
    ]


def _missing_per_image(record: Record) -> float | None:
    """Mean number of true labels per training image that were not observed; None if unknown."""
    labels = record.labels
    if labels is None or labels.flip_rates is None or not labels.images.train:
        return None
    rates = labels.flip_rates
    mean = rates.mean_cardinality
    return None if math.isnan(mean) else mean - (rates.observed - rates.wrong) / labels.images.train

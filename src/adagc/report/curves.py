"""How training went: curves over epochs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from adagc.report.charts import Annotations, Moment, Series, line_chart
from adagc.report.html import duration, esc, listed, section
from adagc.report.record import Record
from adagc.training.records import EpochRecord, Summary
from adagc.types import NetworkRole

_COLOUR = {
    NetworkRole.DEPLOYED: 0,
    NetworkRole.TEACHER: 1,
    NetworkRole.AVERAGE: 3,
    NetworkRole.OTHER: 4,
}
Scored = Callable[[EpochRecord], Mapping[str, Summary]]  # of an epoch, by network


def training_curves(record: Record) -> str:
    """Noisy and clean validation, and the loss."""
    if not record.history:
        return ""
    epochs = _epochs(record)
    marks = _marks(record)
    charts = [
        line_chart(
            epochs,
            _maps(record, _noisy, dashed=False),
            title="Noisy validation mAP",
            caption="against the observed labels: all that training sees",
            extra=marks,
        ),
        line_chart(
            epochs,
            _maps(record, _clean, dashed=True),
            title="Clean validation mAP",
            caption="against the true labels: recorded, never used",
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
    """How well the method guessed what nobody looked at; empty if it keeps no guesses."""
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
        caption="on training images; precision, recall and F1 where nobody looked, at 0.5",
        limit=100,
        extra=marks,
    )
    missing = _missing_per_image(record)
    level = None if missing is None else (missing, f"truly missing: {missing:.2f}")
    second = line_chart(
        epochs,
        [Series("added", added, 2)],
        title="Labels added per image",
        caption="pseudo-labels of at least 0.5 on classes nobody looked at",
        decimals=2,
        extra=Annotations(marks.moments, marks.shaded_after, marks.back, level),
    )
    return section(
        "pseudo-labels",
        "Pseudo-labels",
        f'<div class="charts">{first}{second}</div>',
        lead="What the method believes of the labels it was never shown, judged by the true ones."
        " Recorded, never used.",
    )


def _epochs(record: Record) -> list[int]:
    return [line.epoch for line in record.history]


def _story(record: Record) -> str:
    """What happened when, in words."""
    done = f"{len(record.history)} of {record.epochs} epochs" + (
        f", {duration(record.seconds / len(record.history))} each, validation included"
    )
    told = [esc(done)]
    if record.story.sentence:
        told.append(re.sub(r"(epoch) (\d+)", r"\1 <strong>\2</strong>", esc(record.story.sentence)))
    for title, found, more in (
        ("noisy", _best(record, _noisy), ""),
        ("clean", _best(record, _clean), "; training cannot know"),
    ):
        if found:
            values = [f"{name} {top:.1f} (epoch {when})" for name, (top, when) in found.items()]
            told.append(esc(f"Best {title} mAP: {listed(values)}{more}"))
    if record.twin is not None:
        one, other = map(record.shown, record.twin)
        told.append(esc(f"The {one} network is the {other} here and is not shown twice"))
    items = "".join(f"<li>{text}.</li>" for text in told)
    return f'<div class="chart story"><strong>What happened</strong><ul>{items}</ul></div>'


def _noisy(line: EpochRecord) -> Mapping[str, Summary]:
    return line.noisy


def _clean(line: EpochRecord) -> Mapping[str, Summary]:
    return {} if line.oracle is None else line.oracle.validation


def _best(record: Record, scored: Scored) -> dict[str, tuple[float, int]]:
    """Highest mAP of each network and the first epoch that had it."""
    found: dict[str, tuple[float, int]] = {}
    for line in record.history:
        for name, scores in scored(line).items():
            value, shown = 100 * scores.mean_average_precision, record.shown(name)
            if name in record.networks and value > found.get(shown, (-1.0, 0))[0]:
                found[shown] = value, line.epoch
    return found


def _marks(record: Record) -> Annotations:
    story = record.story
    moments = [Moment(one.epoch, one.text, one.strong) for one in story.milestones]
    return Annotations(moments, shaded_after=story.second_stage_after, back=story.back)


def _maps(record: Record, scored: Scored, *, dashed: bool) -> list[Series]:
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
    names: dict[str, None] = {}  # a set that keeps its order
    for line in record.history:
        names.update(dict.fromkeys(line.losses))
    series = {name: [line.losses.get(name) for line in record.history] for name in names}
    parts = [name for name in series if name != "total"]
    if len(parts) == 1 and series[parts[0]] == series.get("total"):
        del series["total"]  # a loss of one part is that part
    order = {"total": 5} | {name: i for i, name in enumerate(parts)}
    return [
        Series(name.replace("_", " "), values, order[name] % 6, dashed=name == "total")
        for name, values in series.items()
    ]


def _missing_per_image(record: Record) -> float | None:
    labels = record.labels
    if labels is None or labels.flip_rates is None or not labels.images.train:
        return None
    rates = labels.flip_rates
    mean = rates.mean_cardinality
    return None if math.isnan(mean) else mean - (rates.observed - rates.wrong) / labels.images.train

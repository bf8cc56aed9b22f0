"""How training went: curves over epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adagc.report.charts import Annotations, Moment, Series, line_chart
from adagc.report.headline import MAP
from adagc.report.html import duration, esc, listed, section
from adagc.report.record import Record
from adagc.types import in_order

_COLOUR = {"network": 0, "teacher": 1, "averaged": 3}


def training_curves(record: Record) -> str:
    """Noisy and clean validation, and the loss."""
    if not record.history:
        return ""
    epochs = _epochs(record)
    marks = _marks(record)
    charts = [
        line_chart(
            epochs,
            _maps(record, lambda line: line["noisy"], dashed=False),
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
    quality = [line.get("oracle", {}).get("pseudo_labels", {}) for line in record.history]
    if not any(quality):
        return ""
    epochs = _epochs(record)
    marks = _marks(record)
    names = (
        (MAP, "mAP"),
        ("precision", "precision"),
        ("recall", "recall"),
        ("f1", "F1"),
    )
    first = line_chart(
        epochs,
        [
            Series(shown, [_times(line.get(key), 100) for line in quality], colour)
            for colour, (key, shown) in enumerate(names)
        ],
        title="Quality of the pseudo-labels, %",
        caption="on training images; precision, recall and F1 where nobody looked, at 0.5",
        limit=100,
        extra=marks,
    )
    missing = _missing_per_image(record)
    level = None if missing is None else (missing, f"truly missing: {missing:.2f}")
    second = line_chart(
        epochs,
        [Series("added", [_times(line.get("added_per_image"), 1) for line in quality], 2)],
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
    return [int(line["epoch"]) for line in record.history]


def _story(record: Record) -> str:
    """What happened when, in words."""
    best, trigger = record.status.get("best_epoch"), record.status.get("triggered_after")
    done = f"{len(record.history)} of {record.epochs} epochs" + (
        f", {duration(record.seconds / len(record.history))} each, validation included"
    )
    told = [esc(done)]
    if trigger is not None:
        text = f"Warm-up ended after epoch <strong>{esc(trigger)}</strong>; calibration is shaded"
        if record.went_back and best is not None:
            text += (
                f". The noisy validation had been best in epoch <strong>{esc(best)}</strong>:"
                " training went back there before it went on"
            )
        told.append(text)
    elif record.status.get("stage"):
        told.append(f"Still in {esc(record.status['stage'])}, not triggered yet")
    for title, found, more in (
        ("noisy", _best(record, lambda line: line["noisy"]), ""),
        ("clean", _best(record, _clean), "; training cannot know"),
    ):
        if found:
            values = [f"{name} {top:.1f} (epoch {when})" for name, (top, when) in found.items()]
            told.append(esc(f"Best {title} mAP: {listed(values)}{more}"))
    if record.twins:
        told.append("The averaged network is the teacher here and is not shown twice")
    items = "".join(f"<li>{text}.</li>" for text in told)
    return f'<div class="chart story"><strong>What happened</strong><ul>{items}</ul></div>'


def _clean(line: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = line.get("oracle", {}).get("validation", {})
    return found


def _best(
    record: Record, scores_in: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, tuple[float, int]]:
    """Highest mAP of each network and the first epoch that had it."""
    found: dict[str, tuple[float, int]] = {}
    for line in record.history:
        for name, scores in scores_in(line).items():
            value, shown = 100 * scores[MAP], record.shown(name)
            if name not in record.twins and value > found.get(shown, (-1.0, 0))[0]:
                found[shown] = value, line["epoch"]
    return found


def _marks(record: Record) -> Annotations:
    best, trigger = record.status.get("best_epoch"), record.status.get("triggered_after")
    moments = []
    if best is not None and best != trigger:
        moments.append(Moment(best, f"best: {best}"))
    if trigger is not None:
        moments.append(Moment(trigger, f"triggered after {trigger}", strong=True))
    back = (trigger, best) if record.went_back and trigger and best else None
    return Annotations(moments, shaded_after=trigger, back=back)


def _maps(
    record: Record,
    scores_in: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    dashed: bool,
) -> list[Series]:
    lines = [scores_in(line) for line in record.history]
    return [
        Series(
            record.shown(name),
            [_times(line.get(name, {}).get(MAP), 100) for line in lines],
            _COLOUR.get(name, 4),
            dashed=dashed,
        )
        for name in in_order({name for line in lines for name in line})
        if name not in record.twins
    ]


def _losses(record: Record) -> list[Series]:
    names: dict[str, None] = {}  # a set that keeps its order
    for line in record.history:
        names.update(dict.fromkeys(line["losses"]))
    series = {name: [line["losses"].get(name) for line in record.history] for name in names}
    parts = [name for name in series if name != "total"]
    if len(parts) == 1 and series[parts[0]] == series.get("total"):
        del series["total"]  # a loss of one part is that part
    order = {"total": 5} | {name: i for i, name in enumerate(parts)}
    return [
        Series(name.replace("_", " "), values, order[name] % 6, dashed=name == "total")
        for name, values in series.items()
    ]


def _missing_per_image(record: Record) -> float | None:
    rates = record.labels.get("flip_rates", {})
    images = record.labels.get("images", {}).get("train")
    mean = rates.get("mean_cardinality")
    if mean is None or not images:
        return None
    seen: float = (rates["observed"] - rates["wrong"]) / images
    return float(mean) - seen


def _times(value: Any, factor: float) -> float | None:
    return None if value is None else factor * float(value)

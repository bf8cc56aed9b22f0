"""The sections of the page with tables: scores, classes and label noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adagc.metrics import CRITERIA, METRICS
from adagc.report.charts import column_chart
from adagc.report.headline import caveats
from adagc.report.html import bar, clamped, esc, listed, note, section, table
from adagc.report.record import Record
from adagc.report.remarks import remarks
from adagc.training.records import Summary, TestRecord
from adagc.types import Scores


def score_section(record: Record, others: Sequence[Record]) -> str:
    """The section with the test scores of all runs; without a test, noisy validation scores."""
    if record.scores is None or record.final is None:
        return _noisy_section(record)
    runs = [record, *(other for other in others if other.final is not None)]
    rows = [row for run in runs for row in _rows(run)]
    rivals = [row for row in rows if not row.run.clean] or rows
    best = {
        key: metric.best(row.scores.values for row in rivals) for key, metric in METRICS.items()
    }
    bounds = len(rivals) < len(rows)
    html = []
    previous = None
    for row in rows:
        run, scores = row.run, row.scores
        style = ("own" if run is record else "") + (" first" if run is not previous else "")
        style += " bound" if run.clean else ""
        cells = [f'<td class="text">{esc(row.network)}</td><td class="text">{row.epoch}</td>']
        for key, metric in METRICS.items():
            text = metric.shown(scores.values)
            mark = text and len(rivals) > 1 and row in rivals and scores[key] == best[key]
            cells.append(f"<td>{f'<strong>{text}</strong>' if mark else text}</td>")
        html.append(
            f'<tr class="{style.strip()}"><th scope="row">{_run_name(run, runs)}</th>'
            f"{''.join(cells)}</tr>"
        )
        previous = run
    drawn = table(
        ["Method", "Network", "Epoch", *_headings()], html, label="Test scores", style="scores"
    )
    lead = (
        f"Scores on the clean labels of {record.scores.images:,} test images, in per cent"
        " (coverage: a number of labels)."
        " “last” is the network after the final epoch, the choice of the paper; “best” is the"
        f" epoch that the observed validation labels choose ({_criterion(record)})."
    )
    if record.scores.own_thresholds:
        lead += f" A class is predicted if its probability reaches the {_threshold(record.scores)}."
        lead += f" {esc(record.scores.limits_remark)}"
    if len(rivals) > 1:
        lead += " Bold: best of its column"
        lead += ", not counting runs that trained with clean labels." if bounds else "."
    notes = [*dict.fromkeys(text for one in runs for text in remarks(one.run))]
    notes += caveats(record, others)
    never = _never_predicted(record.scores, record.final)
    parts = [drawn, f'<p class="small">{esc(never)}</p>' if never else ""]
    if record.scores.remark:
        parts.insert(1, f'<p class="small">{esc(record.scores.remark)}</p>')
    parts += [f'<p class="small">{esc(note)}</p>' for note in notes]
    return section("scores", "Scores", *parts, lead=lead)


def _criterion(record: Record) -> str:
    """What the best epoch of a run was chosen by, in words."""
    select = record.run.settings.select
    return next((one.title for name, one in CRITERIA.items() if name == select), select)


def _headings() -> list[str]:
    """Column headings of all metrics, with an explanation as hover text."""
    return [
        f'<span title="{esc(metric.about)}">{esc(metric.heading)}&nbsp;{metric.arrow}</span>'
        for metric in METRICS.values()
    ]


@dataclass(frozen=True, eq=False)
class _Row:
    """A row of the table of scores: one network of one run at one epoch."""

    run: Record
    network: str  # title of the network
    epoch: str  # such as "last (40)"
    scores: Summary


def _rows(run: Record) -> Iterator[_Row]:
    """The rows of one run: every network at its last and at its best epoch."""
    tested = {} if run.scores is None else run.scores.networks
    for name in (name for name in run.networks if name in tested):
        for which, at in sorted(tested[name].epochs.items(), reverse=True):  # the last one first
            shown = f"{which} ({at.epoch})"
            yield _Row(run, run.shown(name), shown, Summary(at.scores.summary()))


def _run_name(run: Record, runs: Sequence[Record]) -> str:
    """The method, followed by the folder if several runs have the same method."""
    several = sum(other.method == run.method for other in runs) > 1
    folder = f' <span class="muted">{esc(run.run.folder.name)}</span>' if several else ""
    return esc(run.method) + folder


def _never_predicted(tested: TestRecord, final: Scores) -> str:
    """A sentence that names the classes without a prediction; empty if there are none."""
    counts = final.per_class.predicted
    names = [name for name, count in zip(tested.classes, counts, strict=True) if not count]
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    shown = ", ".join(names[:5]) + more if more else listed(names)
    return (
        f"Never predicted at the {_threshold(tested)} after the last epoch (their precision and F1"
        f" count as 0): {shown}."
    )


def _threshold(tested: TestRecord) -> str:
    """The threshold from which on a class is predicted, in a few words."""
    one = tested.threshold
    return "threshold of each class" if one is None else f"threshold of {one:g}"


def _noisy_section(record: Record) -> str:
    """The section with validation scores on observed labels, for runs without a test."""
    if not record.history:
        return ""
    last = record.history[-1]
    rows = []
    for name in (name for name in record.networks if name in last.noisy):
        scores = last.noisy[name].values
        cells = "".join(f"<td>{metric.shown(scores)}</td>" for metric in METRICS.values())
        rows.append(f'<tr class="own"><th scope="row">{esc(record.shown(name))}</th>{cells}</tr>')
    return section(
        "scores",
        "Scores",
        table(["Network", *_headings()], rows, label="Noisy validation scores", style="scores"),
        note(
            "There are no clean test labels. These scores count every label that was not observed"
            " as absent: they help to compare runs, but are far lower than on clean labels."
        ),
        lead=f"Scores on the observed validation labels after epoch {last.epoch}, in per cent"
        " (coverage: a number of labels).",
    )


def class_section(record: Record, others: Sequence[Record]) -> str:
    """The section with AP and F1 of every class; without a test, its number of observed labels."""
    if record.scores is None or record.final is None:
        return _observed_section(record)
    per_class = record.final.per_class
    names = record.scores.classes
    betas = _betas(record)
    limits, own = record.scores.thresholds, record.scores.own_thresholds
    rival = _rival(record, others)
    beside = None if rival is None or rival.final is None else rival.final.per_class
    images = record.scores.images
    order = sorted(range(len(names)), key=lambda c: (-per_class.support[c], names[c]))
    rows = []
    for c in order:
        ap, f1 = _known(per_class.average_precision[c]), float(per_class.f1[c])
        dot = None if beside is None else _known(beside.average_precision[c])
        support = int(per_class.support[c])
        drawn = bar(ap or 0.0, tick=support / images, dot=dot) + bar(f1, style="second")
        hover = (
            "" if dot is None else f' title="{esc(rival.method if rival else "")}: {100 * dot:.1f}"'
        )
        beta = betas.get(names[c])
        rows.append(
            f'<tr><th scope="row">{clamped(names[c])}</th><td>{support:,}</td>'
            f'<td>{_rate(beta)}</td><td class="bars"{hover}>{drawn}</td>'
            f"<td>{_score(ap)}</td><td>{_score(f1)}</td>"
            f"{f'<td>{_limit(limits[c])}</td>' if own else ''}</tr>"
        )
    keys = ['<li><b class="swatch"></b>average precision</li>']
    keys.append(f'<li><b class="swatch second"></b>F1 at the {_threshold(record.scores)}</li>')
    keys.append('<li><b class="swatch tick"></b>average precision of a random guess</li>')
    if rival is not None:
        keys.append(f'<li><b class="swatch dot"></b>average precision of {esc(rival.method)}</li>')
    head = ["Class", "Test images", "Flip rate", '<span class="hidden">Bars</span>', "AP", "F1"]
    head += ["Threshold"] * own
    return section(
        "classes",
        "Classes",
        f'<ul class="legend">{"".join(keys)}</ul>',
        table(head, rows, label="Scores per class", style="classes"),
        lead=f"The {esc(record.shown(record.networks[0]))} after the last epoch, most frequent"
        " class first. Flip rate: share of a class's true training labels that were not observed.",
    )


def _limit(value: float) -> str:
    """A threshold with as many decimals in every row; one that would be zero keeps its size."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


def _rival(record: Record, others: Sequence[Record]) -> Record | None:
    """The run whose values are marked on the bars: AN, or else the first comparable run.

    Runs with another test or trained with clean labels are not comparable.
    """
    fit = [run for run in others if record.same_test(run) and not run.clean]
    return next((run for run in fit if run.method == "AN"), fit[0] if fit else None)


def _observed_section(record: Record) -> str:
    """The section with the number of observed labels of every class."""
    if record.labels is None:
        return ""
    counts = record.labels.observed_counts
    top = max(*counts, 1)
    pairs = sorted(zip(record.classes, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
    rows = [
        f'<tr><th scope="row">{clamped(name)}</th><td>{count:,}</td>'
        f'<td class="bars">{bar(count / top)}</td></tr>'
        for name, count in pairs
    ]
    head = ["Class", "Observed", '<span class="hidden">Bars</span>']
    return section(
        "classes",
        "Classes",
        table(head, rows, label="Observed labels per class", style="classes"),
        lead="How often each class was observed on the training images.",
    )


def noise_section(record: Record) -> str:
    """The section with flip rates, as in the paper's Table I, and true labels per image."""
    labels = record.labels
    if labels is None or labels.flip_rates is None:
        return ""
    rates, betas = labels.flip_rates, _betas(record)
    rows = [
        f'<tr><th scope="row">{clamped(name)}</th><td>{support:,}</td><td>{seen:,}</td>'
        f'<td class="bars">{bar(betas[name] or 0.0, style="third")}</td>'
        f"<td>{_rate(betas[name])}</td></tr>"
        for name, support, seen in zip(
            labels.classes, rates.support.tolist(), labels.observed_counts, strict=True
        )
    ]
    foot = [
        f'<tr><th scope="row">{name}</th><td>–</td><td>–</td><td class="bars"></td>'
        f"<td>{_rate(_known(mean))}</td></tr>"
        for mean, name in ((rates.micro, "Micro average"), (rates.macro, "Macro average"))
    ]
    head = ["Class", "Support", "Observed", '<span class="hidden">Bars</span>', "β"]
    lead = "Share β of the true labels of the training images that were not observed."
    if rates.wrong:
        lead += f" {rates.wrong:,} observed labels ({100 * rates.wrong_share:.1f} %) are wrong."
    cardinality = rates.cardinality.tolist()
    while cardinality and not cardinality[-1]:
        cardinality = cardinality[:-1]
    mean = _known(rates.mean_cardinality)
    chart = column_chart(
        cardinality,
        [str(i) for i in range(len(cardinality))],
        title="True labels per training image",
        caption="" if mean is None else f"{mean:.1f} on average",
        axis="labels",
    )
    return section(
        "labels",
        "Label noise",
        f'<div class="split">{table(head, rows, label="Flip rates", style="classes", foot=foot)}'
        f"{chart}</div>",
        lead=lead,
    )


def _betas(record: Record) -> dict[str, float | None]:
    """Flip rate of every class; empty if they are not known."""
    labels = record.labels
    if labels is None or labels.flip_rates is None:
        return {}
    return dict(zip(labels.classes, map(_known, labels.flip_rates.beta), strict=True))


def _known(value: float) -> float | None:
    """None instead of NaN."""
    return None if math.isnan(value) else float(value)


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"

"""Scores, classes and label noise as tables with bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adagc.metrics import METRICS
from adagc.report.charts import column_chart
from adagc.report.headline import caveats
from adagc.report.html import bar, clamped, esc, listed, note, section, table
from adagc.report.record import Record


def score_section(record: Record, others: Sequence[Record]) -> str:
    """All metrics of every network of every run; without a test, the noisy ones."""
    if not record.final:
        return _noisy_section(record)
    runs = [record, *(other for other in others if other.final)]
    rows = [(run, *entry) for run in runs for entry in _rows(run)]
    rivals = [row for row in rows if not row[0].clean] or rows
    best = {key: metric.best(scores for *_, scores in rivals) for key, metric in METRICS.items()}
    bounds = len(rivals) < len(rows)
    html = []
    previous = None
    for row in rows:
        run, name, which, scores = row
        style = ("own" if run is record else "") + (" first" if run is not previous else "")
        style += " bound" if run.clean else ""
        cells = [
            f'<td class="text">{esc(name)}</td><td class="text">{which} ({scores["epoch"]})</td>'
        ]
        for key, metric in METRICS.items():
            text = metric.shown(scores)
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
        f"{record.scores['images']:,} test images, clean labels, in per cent (coverage: a count)."
        " “last” is the network after the final epoch, the choice of the paper; “best” is the"
        " epoch with the highest noisy validation mAP."
    )
    if "thresholds" in record.scores:
        lead += f" A class counts as predicted from the {_threshold(record)} on."
    if len(rivals) > 1:
        lead += " Bold: best of its column" + (", clean labels apart." if bounds else ".")
    remarks = caveats(record, others)
    silent = _never_predicted(record)
    parts = [drawn, f'<p class="small">{esc(silent)}</p>' if silent else ""]
    parts += [f'<p class="small">{esc(remark)}</p>' for remark in remarks]
    return section("scores", "Scores", *parts, lead=lead)


def _headings() -> list[str]:
    """Of all metrics; what each one says is in its hover text."""
    return [
        f'<span title="{esc(metric.about)}">{esc(metric.heading)}&nbsp;{metric.arrow}</span>'
        for metric in METRICS.values()
    ]


def _rows(run: Record) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for name, choices in run.networks.items():
        if name in run.twins:
            continue
        for which in ("last", "best"):
            if which in choices:
                yield run.shown(name), which, choices[which]


def _run_name(run: Record, runs: Sequence[Record]) -> str:
    """The method, with the folder where the method alone does not tell the run."""
    several = sum(other.method == run.method for other in runs) > 1
    folder = f' <span class="muted">{esc(run.run.folder.name)}</span>' if several else ""
    return esc(run.method) + folder


def _never_predicted(record: Record) -> str:
    counts = record.final["per_class"]["predicted"]
    names = [
        name for name, count in zip(record.scores["classes"], counts, strict=True) if not count
    ]
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    shown = ", ".join(names[:5]) + more if more else listed(names)
    return (
        f"Never predicted at the {_threshold(record)} (their precision and F1"
        f" count as 0; last epoch): {shown}."
    )


def _threshold(record: Record) -> str:
    """From which probability on a class counts as predicted, in a few words."""
    limits = set(_thresholds(record))
    return f"threshold of {limits.pop():g}" if len(limits) == 1 else "threshold of each class"


def _thresholds(record: Record) -> list[float]:
    """Those that the test scores were made with, one for each class."""
    one = record.scores.get("threshold")
    limits = record.scores.get("thresholds") or [one] * len(record.scores["classes"])
    return [float(limit) for limit in limits]


def _noisy_section(record: Record) -> str:
    if not record.history:
        return ""
    last = record.history[-1]
    rows = []
    for name, scores in last["noisy"].items():
        if name in record.twins:
            continue
        cells = "".join(f"<td>{metric.shown(scores)}</td>" for metric in METRICS.values())
        rows.append(f'<tr class="own"><th scope="row">{esc(record.shown(name))}</th>{cells}</tr>')
    return section(
        "scores",
        "Scores",
        table(["Network", *_headings()], rows, label="Noisy validation scores", style="scores"),
        note(
            "There are no clean test labels. These scores take every label that was not observed"
            " for absent: good for comparing runs, far below what the network is worth."
        ),
        lead=f"Observed validation labels, after epoch {last['epoch']}, in per cent"
        " (coverage: a count).",
    )


def class_section(record: Record, others: Sequence[Record]) -> str:
    """AP and F1 of every class; without a test, how often each class was observed."""
    if not record.final:
        return _observed_section(record)
    per_class = record.final["per_class"]
    names = record.scores["classes"]
    betas = _betas(record)
    limits = _thresholds(record)
    own = "thresholds" in record.scores
    rival = _rival(record, others)
    images = record.scores["images"]
    order = sorted(range(len(names)), key=lambda c: (-per_class["support"][c], names[c]))
    rows = []
    for c in order:
        ap, f1 = per_class["average_precision"][c], per_class["f1"][c]
        dot = None if rival is None else rival.final["per_class"]["average_precision"][c]
        support = per_class["support"][c]
        drawn = bar(ap or 0.0, tick=support / images, dot=dot) + bar(f1 or 0.0, style="second")
        told = (
            "" if dot is None else f' title="{esc(rival.method if rival else "")}: {100 * dot:.1f}"'
        )
        beta = betas.get(names[c])
        rows.append(
            f'<tr><th scope="row">{clamped(names[c])}</th><td>{support:,}</td>'
            f'<td>{_rate(beta)}</td><td class="bars"{told}>{drawn}</td>'
            f"<td>{_score(ap)}</td><td>{_score(f1)}</td>"
            f"{f'<td>{limits[c]:g}</td>' if own else ''}</tr>"
        )
    keys = ['<li><b class="swatch"></b>average precision</li>']
    keys.append(f'<li><b class="swatch second"></b>F1 at the {_threshold(record)}</li>')
    keys.append('<li><b class="swatch tick"></b>a random guess</li>')
    if rival is not None:
        keys.append(f'<li><b class="swatch dot"></b>average precision of {esc(rival.method)}</li>')
    head = ["Class", "Test images", "Flip rate", '<span class="hidden">Bars</span>', "AP", "F1"]
    head += ["Threshold"] * own
    return section(
        "classes",
        "Classes",
        f'<ul class="legend">{"".join(keys)}</ul>',
        table(head, rows, label="Scores per class", style="classes"),
        lead=f"The {esc(record.shown('network'))} after the last epoch, most frequent class first."
        " Flip rate: share of a class's true training labels that nobody recorded.",
    )


def _rival(record: Record, others: Sequence[Record]) -> Record | None:
    """The run to mark beside the bars: AN, or the first that is neither other data nor a bound."""
    fit = [run for run in others if run.final and record.same_test(run) and not run.clean]
    return next((run for run in fit if run.method == "AN"), fit[0] if fit else None)


def _observed_section(record: Record) -> str:
    counts = record.labels.get("observed_counts")
    if not counts:
        return ""
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
    """Flip rates in the form of the paper's Table I, and how many labels an image truly has."""
    rates = record.labels.get("flip_rates")
    if not rates:
        return ""
    counts = record.labels["observed_counts"]
    rows = [
        f'<tr><th scope="row">{clamped(name)}</th><td>{support:,}</td><td>{seen:,}</td>'
        f'<td class="bars">{bar(beta or 0.0, style="third")}</td><td>{_rate(beta)}</td></tr>'
        for name, support, seen, beta in zip(
            record.classes, rates["support"], counts, rates["beta"], strict=True
        )
    ]
    foot = [
        f'<tr><th scope="row">{name}</th><td>–</td><td>–</td><td class="bars"></td>'
        f"<td>{_rate(rates[key])}</td></tr>"
        for key, name in (("micro", "Micro average"), ("macro", "Macro average"))
    ]
    head = ["Class", "Support", "Observed", '<span class="hidden">Bars</span>', "β"]
    lead = "Share β of the true labels of the training images that were not observed."
    if rates["wrong"]:
        lead += (
            f" {rates['wrong']:,} observed labels ({100 * rates['wrong_share']:.1f} %) are wrong."
        )
    cardinality = rates["cardinality"]
    while cardinality and not cardinality[-1]:
        cardinality = cardinality[:-1]
    mean = rates["mean_cardinality"]
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
    rates = record.labels.get("flip_rates")
    return dict(zip(record.classes, rates["beta"], strict=True)) if rates else {}


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"

"""The model card: what a model is, how good it is, and what it may be used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adagc.deploy.facts import ModelFacts
from adagc.deploy.intervals import Interval
from adagc.deploy.licences import Licences
from adagc.errors import NAMED, examples
from adagc.metrics import METRICS
from adagc.report.headline import data_name, supervision
from adagc.report.record import Record
from adagc.training.records import LabelSummary
from adagc.types import Scores

CARD = "MODEL_CARD.md"


@dataclass(frozen=True)
class CardInputs:
    """What a card is written from."""

    record: Record  # the run that the model was trained in
    facts: ModelFacts
    architecture: str
    licences: Licences
    intervals: Mapping[str, Interval]  # of metrics, by key
    remarks: Sequence[str]  # what a reader of the scores must know
    files: Mapping[str, str]  # name of each file of the model, and what it is


def title_of(record: Record) -> str:
    """The name of a model, for people: the method and the data it was trained on."""
    return f"{record.method} on {data_name(record)}"


def write_card(told: CardInputs) -> str:
    """The card as Markdown."""
    parts = (
        _head(told),
        _training(told),
        _scores(told),
        _thresholds(told),
        _limits(told),
        _licences(told),
        _use(told),
    )
    return "\n\n".join(parts) + "\n"


def _head(told: CardInputs) -> str:
    facts = told.facts
    what = "images" if facts.is_image else "embeddings"
    return (
        f"# {title_of(told.record)}\n\n"
        f"A multi-label classifier of {what}: it gives the probability of each of"
        f" {len(facts.classes)} classes, any number of which may be present. Trained and exported"
        f" with adagc {facts.version}.\n\n"
        f"- network: {told.architecture}\n"
        f"- takes: {_taken(facts)}\n"
        f"- classes: {'; '.join(facts.classes)}"
    )


def _taken(facts: ModelFacts) -> str:
    missing = "NaN" if facts.nodata is None else f"NaN or {facts.nodata:g}"
    if not facts.is_image:
        return f"embeddings of length {facts.shape[0]}, as they are; missing values are {missing}"
    _, height, width = facts.shape
    return (
        f"raw values of {len(facts.bands):,} bands in this order ({examples(facts.bands, NAMED)}),"
        f" {height} x {width} pixels; the model normalises them itself; missing values are"
        f" {missing}"
    )


def _training(told: CardInputs) -> str:
    record, labels = told.record, told.record.labels
    lines = [f"- data: {data_name(record)}"]
    if labels is not None:
        lines.append(f"- images: {labels.images.sentence}")
        lines.append(f"- labels: {_scheme(record, labels)}")
    chosen = ", ".join(f"{name} {value}" for name, value in record.telling_options.items())
    method = f"{record.method} ({chosen})" if chosen else record.method
    lines += [
        f"- method: {method}, {record.settings.epochs} epochs, seed {record.settings['seed']}",
        f"- initial weights: {record.settings['weights']}",
    ]
    return "## Training\n\n" + "\n".join(lines)


def _scheme(record: Record, labels: LabelSummary) -> str:
    seen = f"training saw {supervision(record)}"
    if labels.scheme is None:
        return f"{seen}, as people gave them"
    return f"{seen}, simulated from clean ones (scheme {labels.scheme}, seed {labels.seed})"


def _scores(told: CardInputs) -> str:
    tested, scores = told.record.scores, told.record.final
    if tested is None or scores is None:
        return (
            "## Scores\n\nThere are no clean labels to test on. How good the model is has not been"
            " measured."
        )
    rows = ["| metric | value | 95 % interval | what it measures |", "|---|---|---|---|"]
    summary = scores.summary()
    for key, metric in METRICS.items():
        known = told.intervals.get(key)
        ends = ("", "") if known is None else [metric.shown({key: v}) for v in _ends(known)]
        rows.append(
            f"| {metric.heading} {metric.arrow} | {metric.shown(summary)} |"
            f" {' to '.join(ends) if known else ''} | {metric.about} |"
        )
    about = (
        f"On {tested.images:,} {tested.split} images with clean labels, which training did not see."
        " Shares are in per cent; ↑: higher is better, ↓: lower is better. The intervals cover the"
        " choice of test images, not that of the seed of training."
    )
    notes = [note for note in (tested.remark, *told.remarks) if note]
    return "\n\n".join(
        ["## Scores", about, "\n".join(rows), *notes, "By class:", _per_class(told.facts, scores)]
    )


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def _per_class(facts: ModelFacts, scores: Scores) -> str:
    rows = ["| class | threshold | AP | F1 | test images with it |", "|---|---|---|---|---|"]
    table = scores.per_class
    for c, (name, limit) in enumerate(zip(facts.classes, facts.thresholds, strict=True)):
        precision = float(table.average_precision[c])
        shown = "" if precision != precision else f"{100 * precision:.1f}"
        rows.append(
            f"| {name} | {limit:g} | {shown} | {100 * table.f1[c]:.1f} | {table.support[c]} |"
        )
    return "\n".join(rows)


def _thresholds(told: CardInputs) -> str:
    facts = told.facts
    text = (
        "## Thresholds\n\nA class counts as present if its probability is at least its threshold."
        f" The thresholds are {facts.about_thresholds}."
    )
    if told.record.final is None:
        rows = [f"| {c} | {t:g} |" for c, t in zip(facts.classes, facts.thresholds, strict=True)]
        text += "\n\n" + "\n".join(["| class | threshold |", "|---|---|", *rows])
    return text


def _limits(told: CardInputs) -> str:
    facts, labels = told.facts, told.record.labels
    lines = [
        "- It knows the classes above and no others, and images like those it was trained on:"
        " same sensor, same bands, same units, same size of a pixel.",
        "- A probability is not calibrated: it ranks images, and the threshold of its class says"
        " which of them count.",
    ]
    if not told.record.clean:
        lines.append("- Its training labels are incomplete: what nobody named may be there.")
    if labels is not None:
        rare = [
            name
            for name, count in zip(labels.classes, labels.observed_counts, strict=True)
            if count < 10
        ]
        if rare:
            lines.append(
                f"- Fewer than ten training images name {examples(rare, 5)}: expect little of"
                f" {'it' if len(rare) == 1 else 'them'}."
            )
    if facts.is_image:
        lines.append(
            "- Images of another size have to be resized to the model's. It says whether a class"
            " is in an image, not where."
        )
    return "## Limits\n\n" + "\n".join(lines)


def _licences(told: CardInputs) -> str:
    return (
        "## Licences\n\n"
        f"- data: {told.licences.data}\n"
        f"- weights: {told.licences.weights}\n"
        "- The model may be used as far as these terms allow it. adagc, which trained it, is under"
        " the Apache licence 2.0, which says nothing about the model."
    )


def _use(told: CardInputs) -> str:
    facts = told.facts
    files = "\n".join(f"- `{name}`: {about}" for name, about in told.files.items())
    shape = ", ".join(map(str, facts.shape))
    code = (
        "```python\n"
        "import json\n\nimport numpy as np\nimport onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])\n'
        "about = session.get_modelmeta().custom_metadata_map\n"
        f"values = np.zeros((1, {shape}), dtype=np.float32)  # raw values, not normalised\n"
        '(probabilities,) = session.run(["probabilities"], {"images": values})\n'
        'present = probabilities >= np.array(json.loads(about["thresholds"]), dtype=np.float32)\n'
        "```"
    )
    use = f"\n\n{code}\n\nWith adagc: `adagc predict FOLDER INPUT --out FILE`."
    return f"## Files and use\n\n{files}" + (use if "model.onnx" in told.files else "")

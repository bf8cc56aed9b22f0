"""The section of the page on completed labels, if `adagc complete` has been run."""

from __future__ import annotations

from adagc.completion.quality import Quality
from adagc.completion.work import read_summary
from adagc.report.charts import Series, line_chart
from adagc.report.html import esc, facts, section
from adagc.report.record import Record


def recovered_section(record: Record) -> str:
    """What was completed last, and how good it is where clean labels tell; empty before that."""
    made = read_summary(record.run)
    if made is None:
        return ""
    samples = ", ".join(f"{count:,} {kind}" for kind, count in sorted(made.samples.items()))
    pairs = [("Images", esc(f"{made.images:,} ({samples})"))]
    pairs += [(name.capitalize(), f"{count:,}") for name, count in made.counts.items()]
    parts = [facts(pairs)]
    notes = "".join(f'<p class="small">{esc(note)}</p>' for note in made.notes)
    if made.quality is not None:
        beside = f"<div><p>{esc(_sentence(made.quality))}</p>{notes}</div>"
        parts.append(f'<div class="split">{_chart(made.quality)}{beside}</div>')
    else:
        parts.append(notes)
    lead = f"Labels as adagc complete has completed them last. Decided by: {esc(made.rule)}."
    return section("completed", "Completed labels", *parts, lead=lead)


def _chart(quality: Quality) -> str:
    lines = (("precision", quality.precisions), ("recall", quality.recalls))
    drawn = [
        Series(name, [None if value is None else 100 * value for value in values], colour)
        for colour, (name, values) in enumerate(lines)
    ]
    return line_chart(
        quality.confidence,
        drawn,
        title="Recovered labels by confidence, %",
        caption="if all labels were recovered that are at least so probable",
        limit=100,
        axis="confidence",
    )


def _sentence(quality: Quality) -> str:
    """How the decisions compare with clean labels."""
    if quality.precision is None or quality.recall is None:
        return f"No label was recovered; {quality.missing:,} are missing by the clean labels."
    return (
        f"By the clean labels of {quality.images:,} images, {100 * quality.precision:.1f} % of the"
        f" {quality.recovered:,} recovered labels are right, and {100 * quality.recall:.1f} % of"
        f" the {quality.missing:,} missing ones were recovered. No clean label was used to decide."
    )

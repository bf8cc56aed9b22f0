"""The report on labels: in text for a terminal, and as a page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.annotate.events import Event
from adagc.annotate.measures import FEW, ClassRate, Measures, Truth, measure
from adagc.atomic import write_text
from adagc.errors import UsageError
from adagc.labels import LabelTable
from adagc.labels.selection import WIDEST, Selection, write_selection
from adagc.metrics.shares import Estimate

SELECTION = "selection.json"
_SURE = 0.05  # p-value below which something is called more than chance


def report(
    events: Sequence[Event],
    classes: Sequence[str],
    truth: LabelTable | None = None,
    *,
    areas: NDArray[np.float64] | None = None,
    page: Path | None = None,
    selection: Path | None = None,
) -> str:
    """Measure labels and say what was found, in text.

    Args:
        events: Everything that annotators were shown and did.
        classes: Names of all classes.
        truth: All classes that are there, of some images at least.
        areas: (len(truth), C) how much of each image of `truth` each class covers.
        page: File to write the same to as an HTML page.
        selection: File to write selection rates to, which training takes as `--selection`; it needs
            truth.

    Raises:
        UsageError: Selection rates were asked for, and there is too little truth for them.
    """
    found = measure(events, classes, truth, areas=areas)
    if selection is not None:
        if found.truth is None:
            raise UsageError(
                f"selection rates need images of which all classes are known: give --truth with at"
                f" least {FEW} of the annotated images"
            )
        write_selection(selection_of(found), selection)
    if page is not None:
        write_text(page, as_html(found))
    return as_text(found)


def selection_of(found: Measures) -> Selection:
    """Selection rates of all classes, none further from the others than a file may say."""
    if found.truth is None:
        raise UsageError("selection rates need truth")
    edge = math.sqrt(WIDEST)
    rates = found.truth.liking.weights.clip(1 / edge, edge).tolist()
    return Selection(dict(zip(found.classes, rates, strict=True)), found.truth.images)


def sentences(found: Measures) -> list[str]:
    """What was found, in plain words."""
    said = [
        f"{found.answers:,} answers on {found.images:,} images: {found.labels:,} with a label,"
        f" {found.none:,} with none of the classes, {found.skipped:,} skipped. Other candidates"
        f" were asked for before {_share(found.refreshed)} of them."
    ]
    if found.imported:
        said.append(
            f"The labels of {found.imported:,} more images were imported; nothing of what follows"
            " is about them, since nobody knows what was offered."
        )
    if found.active:
        said.append(
            f"A model chose {found.active:,} of the images (--active), those of which it expected"
            " to learn most: how often classes were taken says little about how frequent they are,"
            " and the labels are not like those of a random sample."
        )
    if found.speed is not None:
        s = found.speed
        gone = f" ({s.breaks} breaks left out)" if s.breaks else ""
        said.append(
            f"An answer took {s.median:.1f} s in the middle, {s.quartiles[0]:.1f} to"
            f" {s.quartiles[1]:.1f} s mostly, and 95 % less than {s.slowest:.1f} s:"
            f" {s.per_hour:,.0f} an hour{gone}."
        )
    if found.keys is not None:
        k = found.keys
        counts = ", ".join(f"{count:,}" for count in k.counts)
        verdict = (
            "more than chance explains: some keys are chosen for their place"
            if k.p_value < _SURE
            else "no more than chance explains"
        )
        said.append(
            f"Keys 1 to {k.candidates} were chosen {counts} times, {verdict} (p = {k.p_value:.2g},"
            f" effect {k.effect:.2f}; the first key {_points(k.first)} of equal)."
        )
    said += [
        f"{pair.names[0]} and {pair.names[1]} agree with a kappa of {_number(pair.kappa)}."
        for pair in found.pairs
    ]
    if found.fleiss is not None:
        said.append(
            f"All who saw the same images agree with Fleiss' kappa of {_number(found.fleiss)}."
            " Where several classes are there, different answers need not be mistakes."
        )
    if found.truth is not None:
        said += _compared(found.truth)
    return said


def _compared(truth: Truth) -> list[str]:
    said = [f"Of {truth.images:,} images all classes are known: {_share(truth.wrong)} of labels are"
            " wrong."]  # fmt: skip
    if truth.dominance is not None and truth.area_power is not None:
        said.append(
            f"Between Random (0) and Dominant (1) the labels lie at {_number(truth.dominance)};"
            f" they follow areas with a power of {_number(truth.area_power)}."
        )
        if truth.dominance_offered is not None and truth.dominance_offered.count:
            said.append(
                f"Among the candidates on offer the choices lie at"
                f" {_number(truth.dominance_offered)}: that is what people prefer, before"
                " candidates limited it."
            )
    distance, chance = truth.distance, truth.distance_by_chance
    beyond = "more than" if distance.value > chance else "within"
    said.append(
        f"{distance.value:.1%} of labels would have to be others for classes to be as frequent as"
        f" with random labels ({distance.low:.1%} to {distance.high:.1%}), which is {beyond} what"
        f" random labels reach by chance ({chance:.1%})."
    )
    p = truth.liking.random
    if math.isfinite(p):
        liked = "Some classes are written down more readily than others" if p < _SURE else (
            "No class is written down more readily than others, as far as these labels tell"
        )  # fmt: skip
        said.append(f"{liked} (p = {p:.2g}).")
    return said


def as_text(found: Measures) -> str:
    """The report for a terminal: sentences, and a table of classes."""
    lines = [*sentences(found), ""]
    heads, rows = _table(found)
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _table(found: Measures) -> tuple[list[str], list[list[str]]]:
    heads = ["class", "offered", "taken", "if offered", "95 %"]
    if found.truth is not None:
        heads += ["wrong", "rate", "95 %"]
    rows = []
    for c, rate in enumerate(found.rates):
        row = [rate.name, f"{rate.offered:,}", f"{rate.labels:,}", *_cells(rate.picked)]
        if found.truth is not None:
            liking = found.truth.liking
            told = liking.possible[c] > 0
            row.append(_cells(rate.refused)[0] if rate.refused else "–")
            row.append(f"{liking.weights[c]:.2f}" if told else "–")
            row.append(f"{liking.low[c]:.2f}–{liking.high[c]:.2f}" if told else "–")
        rows.append(row)
    return heads, rows


def _cells(share: Estimate) -> list[str]:
    if not share.count:
        return ["–", "–"]
    return [f"{share.value:.0%}", f"{share.low:.0%}–{share.high:.0%}"]


def _share(share: Estimate) -> str:
    if not share.count:
        return "none"
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"


def _number(value: Estimate) -> str:
    if not value.count or not math.isfinite(value.value):
        return "unknown"
    return f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f}; {value.count:,} images)"


def _points(value: Estimate) -> str:
    return f"{100 * value.value:+.1f} points ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


# -- the page --------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --bar: #2f6fb2; --line: #8886; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } td { font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 12px; }
.bar { fill: var(--bar); } .rule { stroke: currentColor; } .grid { stroke: var(--line); }
@media (prefers-color-scheme: dark) { :root { --bar: #6ea8e5; } }
"""


def as_html(found: Measures, *, title: str = "What the labels tell") -> str:
    """The report as a page without scripts and without anything from elsewhere."""
    heads, rows = _table(found)
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr><th scope='row'>{escape(row[0])}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    said = "".join(f"<li>{escape(text)}</li>" for text in sentences(found))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><ul>{said}</ul>"
        "<h2>How often a class is taken when it is offered</h2>"
        f"{_chart(found.rates)}"
        f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        "</div>"
        "</body></html>\n"
    )


_ROW, _LEFT, _WIDTH = 24, 170, 720


def _chart(rates: Sequence[ClassRate]) -> str:
    """One bar with its interval for each class that was offered, the largest first."""
    known = sorted(
        (rate for rate in rates if rate.picked.count), key=lambda rate: -rate.picked.value
    )
    if not known:
        return "<p>Nothing was offered and answered yet.</p>"
    top = max(rate.picked.high for rate in known)
    scale = (_WIDTH - _LEFT - 10) / top
    height = _ROW * len(known) + 22
    parts = []
    for tick in (0.0, top / 2, top):
        x = _LEFT + scale * tick
        parts.append(
            f"<line class='grid' x1='{x:.1f}' x2='{x:.1f}' y1='0' y2='{height - 20}'/>"
            f"<text x='{x:.1f}' y='{height - 5}' text-anchor='middle'>{tick:.0%}</text>"
        )
    for row, rate in enumerate(known):
        y, share = _ROW * row, rate.picked
        name = rate.name if len(rate.name) <= 24 else f"{rate.name[:23]}…"
        middle = y + _ROW / 2
        parts.append(
            f"<g><title>{escape(rate.name)}: {_share(share)} of {share.count:,}</title>"
            f"<text x='{_LEFT - 8}' y='{middle + 4:.1f}' text-anchor='end'>{escape(name)}</text>"
            f"<rect class='bar' x='{_LEFT}' y='{y + 5}' width='{scale * share.value:.1f}'"
            f" height='{_ROW - 10}'/>"
            f"<line class='rule' x1='{_LEFT + scale * share.low:.1f}'"
            f" x2='{_LEFT + scale * share.high:.1f}' y1='{middle:.1f}' y2='{middle:.1f}'/></g>"
        )
    return (
        f"<svg viewBox='0 0 {_WIDTH} {height}' role='img' aria-label='Share of offers on which each"
        f" class was taken, with 95 % intervals'>{''.join(parts)}</svg>"
    )

"""Pieces of HTML that several sections use; all text that comes from data is escaped by `esc`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def esc(value: object) -> str:
    """A value as text that is safe between tags and inside quoted attributes."""
    return html.escape(str(value), quote=True)


def section(anchor: str, heading: str, *parts: str, lead: str = "") -> str:
    """A section of the page with its heading; `lead`, an introduction, and `parts` are HTML."""
    intro = f'<p class="lead">{lead}</p>' if lead else ""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{anchor}"><h2>{esc(heading)}</h2>{intro}\n{body}\n</section>'


def note(text: str) -> str:
    """A sentence in a box, for something that is missing or important."""
    return f'<p class="note">{esc(text)}</p>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of terms, which are text, and their values, which are HTML."""
    rows = "".join(f"<div><dt>{esc(term)}</dt><dd>{value}</dd></div>" for term, value in pairs)
    return f'<dl class="facts">{rows}</dl>'


def table(
    head: Sequence[str],
    rows: Iterable[str],
    *,
    label: str,
    style: str = "",
    foot: Iterable[str] = (),
) -> str:
    """A table that can be scrolled sideways when the window is narrow.

    Args:
        head: Cells of the header row, HTML.
        rows: Complete <tr> elements.
        label: What the table shows, for screen readers.
        style: CSS class of the table.
        foot: Complete <tr> elements below a rule.
    """
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    below = "".join(foot)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(label)}">'
        f'<table class="{esc(style)}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody>"
        + (f"<tfoot>{below}</tfoot>" if below else "")
        + "</table></div>"
    )


def bar(
    share: float, *, style: str = "", tick: float | None = None, dot: float | None = None
) -> str:
    """A horizontal bar of length `share` (0 to 1), with an optional tick and dot on that scale."""
    extra = ""
    if tick is not None:
        extra += f'<i class="tick" style="left:{_percent(tick)}"></i>'
    if dot is not None:
        extra += f'<i class="dot" style="left:{_percent(dot)}"></i>'
    return (
        f'<span class="bar {style}" aria-hidden="true">'
        f'<b style="width:{_percent(share)}"></b>{extra}</span>'
    )


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.1f}%"


def clamped(name: str) -> str:
    """A name, cut off after two lines; the hover text has the whole name."""
    return f'<span class="clamp" title="{esc(name)}">{esc(name)}</span>'


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours: 4.2 s, 3 min 05 s, 2 h 10 min."""
    whole = round(seconds)
    if seconds < 9.5:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"

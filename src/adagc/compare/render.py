"""Print a table: for the terminal, as Markdown, LaTeX, CSV (long form) and JSON."""

from __future__ import annotations

import csv as comma_separated
import io
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import rich.table
from rich import box
from rich.text import Text

from adagc.compare.tables import BLANK, SPREAD, Cell, Row, Table
from adagc.metrics import METRICS, Metric
from adagc.progress import duration

_STYLES = {"best": "bold", "second": "italic", "": ""}
# Metrics whose printed values are shown in files beside ours.
_BESIDE = ("mean_average_precision", "mean_f1", "mean_recall")
_WIDE = 100  # columns that a terminal needs for showing deviations
_REASON = 60  # largest number of characters of an error message inside a table


def terminal(table: Table, width: int = _WIDE) -> rich.table.Table:
    """The table for a terminal with `width` columns.

    Deviations are shown only if there are at least 100 columns, and numbers then have one decimal
    less than in files.
    """
    known = any(cell.deviation is not None for row in table.rows for cell in row.cells.values())
    spread = known and width >= _WIDE
    notes = [note if spread else note.replace(SPREAD, "") for note in _notes(table, terminal=True)]
    shown = rich.table.Table(
        # As Text, because rich would read words in square brackets as styles.
        title=Text(table.title, style="bold"),
        title_justify="left",
        caption=Text("\n".join(["", *notes]), style="dim"),
        caption_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    shown.add_column("", min_width=16)
    for metric in METRICS.values():
        heading = Text(f"{metric.heading} {metric.arrow}".replace(" ", "\n"))
        shown.add_column(heading, justify="right", no_wrap=True)
    if table.paper:
        shown.add_column("paper\nmAP", justify="right", style="dim", no_wrap=True)
    shown.add_column(table.clock.replace(" ", "\n"), justify="right", no_wrap=True)
    for group in table.groups:
        if group.name:
            shown.add_row(Text(group.name.removesuffix(" methods"), style="dim"))
        for row in group.rows:
            name, *cells = _terminal_cells(row, spread=spread, paper=bool(table.paper))
            shown.add_row(Text(" ") + name if group.name else name, *cells)
    return shown


def _terminal_cells(row: Row, *, spread: bool, paper: bool) -> Iterable[Text]:
    """The cells of a row; one without scores shows what is missing in its first cell."""
    fewer = int(spread)
    share = row.state.removesuffix(" runs").replace(" of ", "/") if row.cells else ""
    yield Text.assemble(row.label + row.footnote, (f" {share}" if share else "", "dim"))
    if row.cells:
        for metric in METRICS.values():
            cell = row.cells.get(metric.key, BLANK)
            mean, after = metric.text(cell.mean, fewer=fewer), ""
            if spread and cell.deviation is not None:
                after = f"±{metric.text(cell.deviation, fewer=fewer)}"
            yield Text.assemble((mean, _STYLES[cell.mark]), (after, "dim"))
    else:
        yield Text(row.state.partition(":")[0], style="red")
        yield from (Text() for _ in range(len(METRICS) - 1))
    if paper:
        yield Text(_paper(row, METRICS["mean_average_precision"], fewer))
    yield Text(duration(row.seconds))


def markdown(table: Table) -> str:
    """A pipe table with its notes below."""
    beside = _beside(table)
    headings = [
        "method",
        *(f"{plain(metric.heading)} {metric.arrow}" for metric in METRICS.values()),
        *(f"paper's {metric.heading}" for metric in beside),
        table.clock,
    ]
    lines = [f"**{plain(table.title)}**", "", piped(headings)]
    lines.append(piped(["---", *["---:"] * (len(headings) - 1)]))
    for group in table.groups:
        if group.name:
            lines.append(piped([f"*{group.name}*", *[""] * (len(headings) - 1)]))
        lines += [piped(_markdown_cells(row, beside)) for row in group.rows]
    notes = [f"{plain(note)}  " for note in _notes(table)]
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def _markdown_cells(row: Row, beside: Sequence[Metric]) -> Iterable[str]:
    state = f" ({row.state})" if row.cells and row.state else ""
    yield plain(row.label + row.footnote + state)
    if row.cells:
        for metric in METRICS.values():
            cell = row.cells.get(metric.key, BLANK)
            around = {"best": "**", "second": "*", "": ""}[cell.mark]
            spread = "" if cell.deviation is None else f" ({metric.text(cell.deviation)})"
            yield f"{around}{metric.text(cell.mean)}{around}{spread}"
    else:
        yield plain(textwrap.shorten(row.state, _REASON, placeholder=" ..."))
        yield from [""] * (len(METRICS) - 1)
    yield from (_paper(row, metric) for metric in beside)
    yield duration(row.seconds)


def piped(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Text with the special characters of Markdown escaped."""
    return re.sub(r"([\\`*_|<>])", r"\\\1", text)


def latex(tables: Iterable[Table], *, document: bool = False) -> str:
    r"""A LaTeX table* environment for each table.

    The result is for \input in a document that loads booktabs and graphicx; with `document` it is
    a complete document.
    """
    body = "\n".join(_latex_table(table) for table in tables)
    return f"{_HEAD}{body}\\end{{document}}\n" if document else body


_HEAD = r"""\documentclass[a4paper]{article}
\usepackage{booktabs}
\usepackage{graphicx}
\setlength{\textwidth}{180mm}
\setlength{\oddsidemargin}{-10.4mm}  % LaTeX adds one inch
\setlength{\topmargin}{-15mm}
\setlength{\textheight}{250mm}
\begin{document}
\pagestyle{empty}
"""


def _latex_table(table: Table) -> str:
    beside = _beside(table)
    columns = 1 + len(METRICS) + len(beside) + 1
    lines = [
        r"\begin{table*}[!tp]",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}\smallskip",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * len(METRICS)}{'r' * len(beside)}r}}",
        r"\toprule",
    ]
    if beside:
        first = 2 + len(METRICS)
        last = first + len(beside) - 1
        blank = " & " * (first - 1)
        lines.append(rf"{blank}\multicolumn{{{len(beside)}}}{{c}}{{the paper's}} & \\")
        lines.append(rf"\cmidrule(lr){{{first}-{last}}}")
    headings = [f"{metric.heading} {metric.arrow}" for metric in METRICS.values()]
    headings += [metric.heading for metric in beside]
    lines.append(" & ".join(["", *map(escape, headings), table.clock]) + r" \\")
    for group in table.groups:
        lines.append(r"\midrule")
        if group.name:
            lines.append(rf"\multicolumn{{{columns}}}{{l}}{{\emph{{{escape(group.name)}}}}} \\")
        lines += [" & ".join(_latex_cells(row, beside)) + r" \\" for row in group.rows]
    notes = r" \\ ".join(map(escape, _notes(table)))
    lines += [r"\bottomrule", r"\end{tabular}}", r"\par\smallskip"]
    lines += [rf"\parbox{{\textwidth}}{{\footnotesize {notes}}}", r"\end{table*}", ""]
    return "\n".join(lines)


def _latex_cells(row: Row, beside: Sequence[Metric]) -> Iterable[str]:
    state = f" ({row.state})" if row.cells and row.state else ""
    yield escape(row.label + row.footnote + state)
    if row.cells:
        cells = ((row.cells.get(key, BLANK), metric) for key, metric in METRICS.items())
        yield from (_latex_cell(cell, metric) for cell, metric in cells)
    else:
        why = escape(textwrap.shorten(row.state, _REASON, placeholder=" ..."))
        yield rf"\multicolumn{{{len(METRICS)}}}{{l}}{{{why}}}"
    yield from (_paper(row, metric) for metric in beside)
    yield duration(row.seconds)


def _latex_cell(cell: Cell, metric: Metric) -> str:
    mean = metric.text(cell.mean)
    mean = {"best": rf"\textbf{{{mean}}}", "second": rf"\textit{{{mean}}}", "": mean}[cell.mark]
    return mean if cell.deviation is None else f"{mean} ({metric.text(cell.deviation)})"


_SIGNS = {
    "\0": "{}", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$",
    "−": "$-$", "→": r"$\to$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$",
    "–": "--", "—": "---", "…": r"\dots{}", "‘": "`", "’": "'", "“": "``", "”": "''",
    "\N{NO-BREAK SPACE}": "~", "ᵃ": r"\textsuperscript{a}", "ᵉ": r"\textsuperscript{e}",
    "†": r"$^{\dagger}$", "′": r"$'$",
    "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ł": r"\l{}",
    "Ł": r"\L{}",
    "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "Ω": r"$\Omega$",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r",
    "\u030c": "v", "\u0327": "c", "\u0304": "=", "\u0306": "u", "\u030b": "H", "\u0307": ".",
}  # fmt: skip


def escape(text: str) -> str:
    r"""Text as ASCII with LaTeX commands; an unsupported character becomes a question mark.

    >>> print(escape("50 % of R&D, α ≤ 0.1, café --resume"))
    50 \% of R\&D, $\alpha$ $\leq$ 0.1, caf\'{e} -{}-resume
    """
    # LaTeX would print two hyphens as a dash. Replaced twice, because in three hyphens the two
    # pairs overlap and the first pass replaces only one of them.
    apart = text.replace("--", "-\0-").replace("--", "-\0-")
    return "".join(map(_spelt, unicodedata.normalize("NFC", apart)))


def _spelt(sign: str) -> str:
    """One character as LaTeX."""
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign if sign.isprintable() else " "
    greek = re.fullmatch(r"GREEK SMALL LETTER (\w+)", unicodedata.name(sign, ""))
    if greek and greek[1] != "OMICRON":
        return rf"$\{greek[1].lower().replace('lamda', 'lambda')}$"
    decomposed = unicodedata.normalize("NFKD", sign)
    letter, accents = decomposed[0], decomposed[1:]
    if not letter.isascii():
        return "?"
    if accents in _ACCENTS:
        return rf"\{_ACCENTS[accents]}{{{letter}}}"
    return _SIGNS.get(letter, letter)  # such as a full-width percent sign


COLUMNS = (
    "scenario", "network", "epoch", "group", "label", "method", "metric", "unit", "mean",
    "deviation", "runs", "mark", "paper_mean", "paper_deviation", "priors",
)  # fmt: skip


def csv(tables: Iterable[Table]) -> str:
    """CSV with one line per metric of every row, not rounded; the mean is empty without results."""
    text = io.StringIO()
    writer = comma_separated.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for group in table.groups:
            for row in group.rows:
                for metric in METRICS.values():
                    cell, printed = row.cells.get(metric.key, BLANK), row.paper.get(metric.key)
                    writer.writerow({
                        "scenario": table.scenario,
                        "network": table.network,
                        "epoch": table.choice,
                        "group": group.name,
                        "label": row.label,
                        "method": row.method,
                        "metric": metric.key,
                        "unit": metric.unit,
                        "mean": _optional(cell.mean),
                        "deviation": _optional(cell.deviation),
                        "runs": cell.runs,
                        "mark": cell.mark,
                        "paper_mean": _optional(printed.mean if printed else None),
                        "paper_deviation": _optional(printed.deviation if printed else None),
                        "priors": row.knows,
                    })  # fmt: skip
    return text.getvalue()


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def json(tables: Iterable[Table]) -> Any:
    """All fields of the tables, ready for `json.dumps`."""
    return [asdict(table) for table in tables]


def _paper(row: Row, metric: Metric, fewer: int = 0) -> str:
    """The printed value of the paper, with `fewer` decimals less; empty if there is none."""
    printed = row.paper.get(metric.key)
    return "" if printed is None else metric.text(printed.mean, fewer=fewer)


def _beside(table: Table) -> list[Metric]:
    """The metrics whose printed values get a column; none if the table has no such values."""
    return [METRICS[key] for key in _BESIDE] if table.paper else []


def _notes(table: Table, *, terminal: bool = False) -> Iterable[str]:
    """The notes below a table; in a terminal also what files show inside the table."""
    yield from table.notes
    if terminal:
        if any(row.cells and row.state for row in table.rows):
            yield "After a name: runs with results / planned runs."
        for row in table.rows:
            if not row.cells and row.state.startswith(("failed", "left out")):
                yield f"{row.label} {row.state}"
    if table.paper:
        yield f"The paper's values are not from these runs, but from its {table.paper}."

"""Print and write a choice that was made without clean labels: terminal, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import rich.table
from rich import box
from rich.text import Text

from adagc.atomic import write_text
from adagc.choice import TIE
from adagc.compare.choosing import ROLES, Choosing, Row
from adagc.compare.explaining import Fit
from adagc.compare.render import piped, plain
from adagc.compare.tables import CLEAN, PRIORS
from adagc.methods.told import TOLD
from adagc.metrics import CRITERIA
from adagc.progress import duration
from adagc.training.views import View

STEM = "choice"  # name of the files without their suffix
_TOLD = {CLEAN: "trains with clean labels", PRIORS: TOLD}
_LIKELIHOOD, _AUC = CRITERIA["tempered"], CRITERIA["auc"]


def terminal(choosing: Choosing) -> rich.table.Table:
    """The table for a terminal."""
    shown = rich.table.Table(
        title=Text(_title(choosing), style="bold"),
        title_justify="left",
        caption=Text("\n".join(["", *_notes(choosing)]), style="dim"),
        caption_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        show_edge=False,
    )
    for number, heading in enumerate(_headings(choosing)):
        narrow = heading.replace(" ", "\n")
        shown.add_column(narrow, justify="right" if number else "left", no_wrap=bool(number))
    for row in choosing.rows:
        style = "bold" if row.label == choosing.chosen else ""
        narrow_cells = (cell.replace("± ", "±") for cell in _cells(choosing, row))
        shown.add_row(*(Text(cell, style=style) for cell in narrow_cells))
    return shown


def markdown(choosing: Choosing) -> str:
    """A pipe table with its notes and the choice below."""
    headings = _headings(choosing)
    lines = [f"**{plain(_title(choosing))}**", "", piped(headings)]
    lines.append(piped(["---", *["---:"] * (len(headings) - 1)]))
    lines += [piped(map(plain, _cells(choosing, row))) for row in choosing.rows]
    lines += ["", *(f"{plain(note)}  " for note in _notes(choosing))]
    return "\n".join([*lines, "", *sentences(choosing)]) + "\n"


def sentences(choosing: Choosing) -> Sequence[str]:
    """What is said below the table; the last sentence is the choice."""
    return [text for text in (choosing.hint, choosing.sentence) if text]


def write(choosing: Choosing, folder: Path) -> None:
    """Write choice.md and choice.json to the folder of a scenario."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{STEM}.md", markdown(choosing))
    write_text(folder / f"{STEM}.json", json.dumps(choosing.to_dict(), indent=1) + "\n")


def _title(choosing: Choosing) -> str:
    return f"{choosing.title}: how well methods explain observed labels"


def _headings(choosing: Choosing) -> list[str]:
    networks = [View(role).network for role in ROLES]
    return ["", *networks, "behind", _AUC.title, choosing.clock]


def _cells(choosing: Choosing, row: Row) -> Iterable[str]:
    runs = f" ({row.state})" if row.fits and row.state else ""
    yield f"{row.label}{row.footnote}{runs}"
    fits = [row.fits.get(View(role).word) for role in ROLES]
    if any(fits):
        yield from map(_fit, fits)
    else:
        yield row.state.partition(":")[0]
        yield ""
    if row.gap is None:
        yield ""
    else:
        behind = f"{row.gap.mean:.3f} ± {row.gap.half:.3f}"
        yield f"{behind}, tie" if row.tie else behind
    judged = row.fits.get(choosing.view.word)
    yield "" if judged is None else _AUC.shown(judged.auc)
    yield duration(row.seconds)


def _fit(fit: Fit | None) -> str:
    if fit is None:
        return ""
    error = "" if fit.error is None else f" ± {_LIKELIHOOD.shown(fit.error)}"
    return f"{_LIKELIHOOD.shown(fit.likelihood)}{error}"


def _notes(choosing: Choosing) -> Iterable[str]:
    """Sentences below the table."""
    view = choosing.view
    spread = " ± its standard error over seeds" if choosing.seeds > 1 else ""
    yield (
        f"{_LIKELIHOOD.title.capitalize()} of a validation image's observed label, mean{spread}:"
        f" larger is better. {view.networks.capitalize()} are ranked."
    )
    if choosing.chosen:
        seeds = f"{choosing.seeds} seeds and " if choosing.seeds > 1 else ""
        many = f", corrected for comparing {choosing.compared} methods"
        yield (
            f"Behind: difference from {choosing.chosen} with its 95 % interval over {seeds}"
            f"{choosing.images:,} validation images{many if choosing.compared > 2 else ''}. It is"
            f" a tie if it is below {TIE} or the interval contains 0."
        )
    for mark, text in _TOLD.items():
        if any(row.footnote == mark for row in choosing.rows):
            yield f"{mark} {text}, and is not chosen."
    for row in choosing.rows:
        if not row.fits and ":" in row.state:
            yield f"{row.label} {row.state}"

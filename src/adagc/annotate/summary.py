"""The measures of labels in words and tables, for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adagc.annotate.events import Event
from adagc.annotate.measures import Measures
from adagc.annotate.store import database_of, read_events
from adagc.errors import DataError
from adagc.metrics.shares import Estimate

if TYPE_CHECKING:
    from rich.console import RenderableType


def events_of(path: Path) -> tuple[list[Event], tuple[str, ...]]:
    """The events and classes of a project, given its label file or its file of events."""
    database = path if path.suffix == ".sqlite" else database_of(path)
    events, settings = read_events(database)
    if not any(event.kind == "choose" for event in events):
        raise DataError(f"{database}: nobody has given a label yet; label some images first")
    return events, tuple(settings["classes"])


def render(found: Measures) -> list[RenderableType]:
    """What was measured: sentences, and a table of the classes."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    columns = ["class", "labels", "offered", "picked when offered"]
    known = found.truth is not None
    columns += ["not there", "passed over"] * known
    for column in columns:
        table.add_column(column, justify="left" if column == "class" else "right")
    for rate in found.rates:
        cells = [f"{rate.labels:,}", f"{rate.offered:,}", _share(rate.picked)]
        cells += [_share(rate.refused), _share(rate.missed)] * known
        # As Text, which prints a "[" in a name instead of reading it as markup.
        table.add_row(Text(rate.name), *cells)
    return [Text(_sums(found)), table, Text("\n".join(_sentences(found)))]


def _sums(found: Measures) -> str:
    people = "1 person" if len(found.people) == 1 else f"{len(found.people)} people"
    return (
        f"{found.images:,} images, {found.labels:,} labelled answers by {people};"
        f" {found.none:,} times none of the classes, {found.skipped:,} skipped; other candidates"
        f" were asked for on {_share(found.refreshed)} of the images."
    )


def _sentences(found: Measures) -> list[str]:
    lines = []
    if found.speed is not None:
        lines.append(
            f"Speed: {found.speed.median:.1f} s per answer in the median,"
            f" {found.speed.per_hour:,.0f} answers in an hour of work."
        )
    if found.keys is not None:
        often = " ".join(f"{count:,}" for count in found.keys.counts)
        judged = "a bias" if found.keys.p_value < 0.01 else "no sign of a bias"
        lines.append(
            f"Keys: chosen {often} times from first to last: {judged}"
            f" (p = {found.keys.p_value:.2g})."
        )
    lines += [
        f"Agreement of {' and '.join(pair.names)}: Cohen's kappa {_number(pair.kappa)}."
        for pair in found.pairs
    ]
    if found.fleiss is not None:
        lines.append(f"Agreement of all: Fleiss' kappa {_number(found.fleiss)}.")
    if found.truth is not None:
        lines.append(
            f"Of the labels {_share(found.truth.wrong)} are of a class that is not there; the"
            f" distance from labels drawn at random is {_number(found.truth.distance)}"
            f" (chance alone reaches {found.truth.distance_by_chance:.3f})."
        )
    return lines


def _share(found: Estimate | None) -> str:
    if found is None or found.count == 0:
        return "-"
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f})"


def _number(found: Estimate) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"

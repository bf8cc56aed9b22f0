"""The events of a labelling project in one SQLite file: added, never changed or deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from adagc.annotate.events import Event
from adagc.web.ledger import (
    Form,
    Ledger,
    database_of,
    packed,
    reading,
    rows_in,
    settings_in,
    unpacked,
)

_FORM: Final = Form(
    command="annotate",
    mark=0x61646763,  # "adgc"
    columns=(
        ("time", "REAL NOT NULL"),
        ("annotator", "TEXT NOT NULL"),
        ("image", "TEXT NOT NULL"),
        ("kind", "TEXT NOT NULL"),
        ("candidates", "TEXT NOT NULL DEFAULT '[]'"),
        ("present", "TEXT NOT NULL DEFAULT '[]'"),
        ("absent", "TEXT NOT NULL DEFAULT '[]'"),
        ("key", "INTEGER"),
        ("seconds", "REAL"),
        ("undoes", "INTEGER REFERENCES events (number)"),
    ),
    later=(("gain", "REAL"),),
)


class Store(Ledger):
    """The file of a project; see `Ledger`.

    Args:
        path: The file, which is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _FORM)

    def events(self) -> list[Event]:
        """All events in their order."""
        return _events(self.rows())

    def add(self, events: Sequence[Event], request: str | None = None) -> None:
        """Add events, with the numbers that follow those in the file; see `Ledger.add_rows`."""
        rows = [
            (
                event.number, event.time, event.annotator, event.image, event.kind,
                packed(event.candidates), packed(event.present), packed(event.absent),
                event.key, event.seconds, event.undoes, event.gain,
            )
            for event in events
        ]  # fmt: skip
        self.add_rows(rows, request)


def read_events(path: Path) -> tuple[list[Event], dict[str, Any]]:
    """All events and the settings of a file, also while a server writes to it elsewhere.

    DataError if it is none of ours.
    """
    with reading(path, _FORM) as database:
        return _events(rows_in(database, _FORM)), settings_in(database)


def events_of(labels: Path) -> tuple[list[Event], tuple[str, ...]]:
    """The events and classes of a project, given its label file or its file of events."""
    database = labels if labels.suffix == ".sqlite" else database_of(labels)
    events, settings = read_events(database)
    return events, tuple(settings["classes"])


def _events(rows: Iterable[tuple[Any, ...]]) -> list[Event]:
    return [Event(*row[:5], *map(unpacked, row[5:8]), *row[8:]) for row in rows]

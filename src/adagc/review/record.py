"""What reviewers were shown and did, as events in one SQLite file beside the label file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from adagc.errors import DataError
from adagc.review.answers import Answer
from adagc.review.questions import Suggestion, from_plain
from adagc.web.ledger import Form, Ledger, database_of, reading, rows_in, settings_in

Kind = Literal["shown", "answer", "accept", "next", "undo"]
SAYING: Final = ("answer", "accept", "next")  # what an undo takes back

FORM: Final = Form(
    command="review",
    mark=0x61646772,  # "adgr"
    columns=(
        ("time", "REAL NOT NULL"),
        ("reviewer", "TEXT NOT NULL"),
        ("image", "TEXT NOT NULL"),
        ("kind", "TEXT NOT NULL"),
        ("answers", "TEXT NOT NULL DEFAULT '{}'"),
        ("threshold", "INTEGER"),
        ("seconds", "REAL"),
        ("undoes", "INTEGER REFERENCES events (number)"),
    ),
)


@dataclass(frozen=True)
class Event:
    """One thing that a reviewer was shown or did. Events are added, never changed or deleted.

    Attributes:
        number: Order of events in the file, counted from 1.
        time: Seconds since 1970 (UTC) by the server's clock.
        reviewer: Name that the reviewer gave.
        image: Name of the image.
        kind: "shown": the image came before the reviewer, with its questions; "answer": one class
            was answered; "accept": all open classes from a threshold on were said to be there;
            "next": the reviewer went on, and what was open is skipped; "undo": the event `undoes`
            no longer counts.
        answers: What was said about each class: +1 it is there, -1 it is not, 0 skipped. Of
            "shown" the classes that were asked about, each with 0.
        threshold: Percent from which on classes were accepted.
        seconds: Time from the last answer, or from the image on screen, as the page measured it.
        undoes: Number of the event that an "undo" takes back.
    """

    number: int
    time: float
    reviewer: str
    image: str
    kind: Kind
    answers: Mapping[str, int] = field(default_factory=dict)
    threshold: int | None = None
    seconds: float | None = None
    undoes: int | None = None


def counting(events: Iterable[Event]) -> list[Event]:
    """The events that say something and still count: neither undone ones nor the undoing."""
    kept = list(events)
    undone = {event.undoes for event in kept if event.kind == "undo"}
    return [event for event in kept if event.kind in SAYING and event.number not in undone]


def answers_of(events: Iterable[Event], plan: Iterable[Suggestion]) -> list[Answer]:
    """All answers that count, in their order, with what only the plan says: which were blind."""
    blind = {(one.image, each.label) for one in plan for each in one.questions if each.blind}
    return [
        Answer(event.image, label, value, blind=(event.image, label) in blind)
        for event in counting(events)
        for label, value in event.answers.items()
    ]


class Store(Ledger):
    """The file of a review; see `Ledger`.

    Args:
        path: The file, which is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, FORM)

    def events(self) -> list[Event]:
        """All events in their order."""
        return _events(self.rows())

    def add(self, events: Sequence[Event], request: str | None = None) -> None:
        """Add events, with the numbers that follow those in the file; see `Ledger.add_rows`."""
        rows = [
            (
                event.number, event.time, event.reviewer, event.image, event.kind,
                json.dumps(event.answers, ensure_ascii=False), event.threshold, event.seconds,
                event.undoes,
            )
            for event in events
        ]  # fmt: skip
        self.add_rows(rows, request)


@dataclass(frozen=True)
class Record:
    """All that a file of events says of a review."""

    events: tuple[Event, ...]
    plan: tuple[Suggestion, ...]
    classes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def answers(self) -> list[Answer]:
        """All answers that count, in their order."""
        return answers_of(self.events, self.plan)


def read_record(path: Path) -> Record:
    """What a review has kept so far, given its label file or its file of events."""
    place = path if path.suffix == ".sqlite" else database_of(path)
    with reading(place, FORM) as database:
        events, settings = _events(rows_in(database, FORM)), settings_in(database)
    if "plan" not in settings:
        raise DataError(f"{place}: the review has not begun; run adagc review again")
    plan = from_plain(settings["plan"])
    return Record(tuple(events), plan, tuple(settings["classes"]), settings)


def _events(rows: Iterable[tuple[Any, ...]]) -> list[Event]:
    return [Event(*(*row[:5], json.loads(row[5]), *row[6:])) for row in rows]

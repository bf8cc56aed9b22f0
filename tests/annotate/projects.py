"""Small labelling projects for tests, and what must hold of the events of any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from adagc.annotate.desk import Desk, Overlap
from adagc.annotate.events import Event, counting
from adagc.annotate.label_file import LabelFile
from adagc.annotate.protocol import Rules
from adagc.annotate.store import Store
from adagc.labels import read_labels
from adagc.web.ledger import database_of

CLASSES = ("forest", "water", "town", "field", "road", "beach", "rock", "marsh", "park")
ANSWERS = ("choose", "none", "skip", "absent")


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Project:
    """A desk that can be started again."""

    def __init__(self, folder: Path, images: int | Sequence[str] = 6, **options) -> None:
        self.names = [f"i{n}" for n in range(images)] if isinstance(images, int) else list(images)
        self.out = folder / "labels.csv"
        self.overlap = options.pop("overlap", Overlap())
        self.patience = options.pop("patience", 100.0)
        self.clock = Clock()
        self.rules = Rules(CLASSES, **options)
        self.open()

    def open(self) -> None:
        self.store = Store(database_of(self.out))
        labels = LabelFile(self.out, self.rules)
        self.desk = Desk(
            self.names, self.rules, self.store, labels,
            overlap=self.overlap, patience=self.patience, clock=self.clock,
        )  # fmt: skip

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def choose(self, who: str, place: int = 0, **more):
        """Answer what is before somebody with the class at a key."""
        view = self.desk.look(who)
        return self.desk.answer(
            who, view.image, "choose", present=[view.candidates[place]], key=place, **more
        )

    @property
    def events(self) -> list[Event]:
        return self.store.events()

    def labels(self) -> dict[str, str]:
        """What training reads, by image; several labels with | between them."""
        if self.out.read_text(encoding="utf-8").count("\n") <= 2:
            return {}
        table = read_labels(self.out)
        marks = {1: "", -1: "!"}
        return {
            image: "|".join(
                marks[value] + name
                for name, value in zip(table.classes, row.tolist(), strict=True) if value
            )
            for image, row in zip(table.images, table.values, strict=True)
        }  # fmt: skip


def answers_of(events: Sequence[Event]) -> dict[str, list[Event]]:
    """The answers of each image that count, without skips."""
    found = defaultdict(list)
    for event in counting(list(events)):
        if event.kind in ("choose", "none", "absent"):
            found[event.image].append(event)
    return found


def expected_labels(events: Sequence[Event]) -> dict[str, str]:
    """The label file of a project of single labels, in the plainest way."""
    firsts = {image: answers[0] for image, answers in answers_of(events).items()}
    return {image: first.present[0] for image, first in firsts.items() if first.present}


def check_events(events: Sequence[Event], wanted: int = 1) -> None:
    """What no race and no kill may break."""
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    for image, answers in answers_of(events).items():
        people = [answer.annotator for answer in answers]
        assert len(people) <= wanted, f"{image} was answered by {people}"
        assert len(set(people)) == len(people), f"{image} was answered twice by {people}"
    current: dict[str, Event] = {}
    for event in events:
        if event.kind in ("shown", "refresh"):
            current[event.annotator] = event
        elif event.kind in ANSWERS:
            before = current.pop(event.annotator)
            assert before.image == event.image, "answered what was not before them"
            assert before.candidates == event.candidates

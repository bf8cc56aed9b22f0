"""Small reviews for tests: a desk, a served page, a tiny run, and what must hold of any record."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adagc.labels import LabelTable, read_labels
from adagc.review.answers import reviewed
from adagc.review.desk import Desk
from adagc.review.layers import Layers
from adagc.review.questions import Question, Suggestion, from_plain, to_plain
from adagc.review.record import Event, Store, answers_of, counting
from adagc.review.server import make_app
from adagc.review.table_file import TableFile
from adagc.web.images import open_images
from adagc.web.ledger import database_of
from adagc.web.serve import Server
from web.visitors import Client

CLASSES = ("forest", "water", "town", "field", "road", "beach", "rock", "marsh", "park")


class Clock:
    """A clock that goes a second with every look."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def make_plan(images: Sequence[str], *, seed: int = 0, blind: bool = False) -> list[Suggestion]:
    """One class is marked on each image, and three to five others are asked about."""
    luck = np.random.default_rng(seed)
    plan = []
    for image in images:
        drawn = luck.permutation(len(CLASSES))[: int(luck.integers(4, 7))].tolist()
        chances = sorted(luck.random(len(drawn) - 1).round(3).tolist(), reverse=True)
        questions = tuple(
            Question(CLASSES[c], chance, blind=blind and bool(luck.random() < 0.4))
            for c, chance in zip(drawn[1:], chances, strict=True)
        )
        plan.append(Suggestion(image, (CLASSES[drawn[0]],), questions))
    return plan


def make_table(plan: Sequence[Suggestion]) -> LabelTable:
    """The labels before the review: one per image."""
    values = np.zeros((len(plan), len(CLASSES)), dtype=np.int8)
    for row, one in enumerate(plan):
        values[row, CLASSES.index(one.marked[0])] = 1
    return LabelTable(tuple(one.image for one in plan), CLASSES, values, "multi", {"seed": "0"})


class Review:
    """A desk that can be started again."""

    def __init__(self, folder: Path, images: int | Sequence[str] = 6, **options: Any) -> None:
        self.names = [f"i{n}" for n in range(images)] if isinstance(images, int) else list(images)
        self.out = folder / "reviewed.csv"
        self.blind = options.pop("blind", False)
        self.patience = options.pop("patience", 100.0)
        self.plan = options.pop("plan", None) or make_plan(self.names, blind=self.blind)
        self.table = make_table(self.plan)
        self.clock = Clock()
        self.open()

    def open(self) -> None:
        self.store = Store(database_of(self.out))
        if not self.store.settings():
            self.store.settle(plan=to_plain(self.plan), classes=list(CLASSES))
        rows = {name: row for row, name in enumerate(self.table.images)}
        self.desk = Desk(
            from_plain(self.store.settings()["plan"]), self.store,
            TableFile(self.out, self.table, rows),
            blind=self.blind, patience=self.patience, clock=self.clock,
        )  # fmt: skip

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.open()

    @property
    def events(self) -> list[Event]:
        return self.store.events()

    def check(self) -> None:
        """What must hold after every call: events, label file and desk say the same."""
        check_events(self.events)
        check_file(self.out, self.table, answers_of(self.events, self.plan))


def check_file(out: Path, before: LabelTable, answers: Any) -> None:
    """The file holds exactly what counts, with the labels before; by the slow way."""
    wanted, found = reviewed(before, list(answers)), read_labels(out)
    assert found.images == wanted.images
    assert found.classes == wanted.classes
    np.testing.assert_array_equal(found.values, wanted.values)
    assert found.kind == "multi"


def check_events(events: Sequence[Event]) -> None:
    """What no race and no kill may break."""
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    before: dict[str, str | None] = {}
    for event in events:
        if event.kind == "shown":
            holders = [who for who, image in before.items() if image == event.image]
            for who in holders:  # only what somebody has left for long goes to others
                before[who] = None
            before[event.reviewer] = event.image
        elif event.kind != "undo":
            assert before[event.reviewer] == event.image, "answered what was not before them"
            if event.kind == "next":
                before[event.reviewer] = None
    undone = [event.undoes for event in events if event.kind == "undo"]
    assert len(set(undone)) == len(undone), "undone twice"


def values_of(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    """What counts about each image, in the plainest way."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for event in counting(events):
        found[event.image] |= event.answers
    return dict(found)


class Waiting:
    """What the server needs of a project, without a run."""

    def __init__(self, images: Any, desk: Desk | None, blind: bool = False) -> None:
        self.images, self.desk, self.layers = images, desk, Layers()
        self.doing, self.failure, self.mute = "loading the model", None, False
        self.options = Namespace(blind=0.2 if blind else 0.0, threshold=60)

    def furnish(self) -> None:
        """The model is there: a map whose middle is bright."""
        from adagc.review.evidence import layer

        bright = np.zeros((4, 4), np.float32)
        bright[1:3, 1:3] = 1
        self.layers.furnish(lambda image, labels: {label: layer(bright) for label in labels})


def make_pictures(folder: Path, count: int = 6) -> None:
    """Small pictures, of which the last one is broken."""
    folder.mkdir(parents=True, exist_ok=True)
    luck = np.random.default_rng(0)
    for n in range(count):
        pixels = luck.integers(0, 255, (6, 8, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
        Image.fromarray(pixels).save(folder / f"i{n:02d}.png")
    (folder / f"i{count - 1:02d}.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing that is one")


@contextmanager
def serving(
    folder: Path, *, host: str | None = None, ready: bool = True, **options: Any
) -> Iterator[tuple[Review, Waiting, Client, Server]]:
    """A review of the images in `folder`/images, served; with the model unless not `ready`."""
    images = open_images(folder / "images")
    review = Review(folder, images.names, **options)
    waiting = Waiting(images, review.desk, review.blind)
    if ready:
        waiting.furnish()
    app = make_app(waiting)  # type: ignore[arg-type]
    server = Server(host=host)
    begun = threading.Event()
    work = threading.Thread(target=server.run, args=(app, begun.set))
    work.start()
    try:
        assert begun.wait(60)
        yield review, waiting, Client(server.port), server
    finally:
        server.stop()
        work.join(30)
        review.close()
    assert not work.is_alive()

"""The work of all annotators: what each sees, what each answers, kept before it is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adagc.annotate.events import Event, Kind, counting
from adagc.annotate.label_file import LabelFile
from adagc.annotate.people import ANSWERS, Person
from adagc.annotate.pool import Pool
from adagc.annotate.protocol import Answer, Rules, chance, check_answer, offer, order
from adagc.annotate.store import Store

TAKEN = "That image went to somebody else meanwhile, so your answer was not kept."
SKIPPED_TAKEN = "The image that you skipped went to somebody else."


@dataclass(frozen=True)
class Overlap:
    """How many people answer the same image.

    Attributes:
        people: So many.
        share: For this share of the images; the others are answered by one.
    """

    people: int = 1
    share: float = 1.0


@dataclass(frozen=True)
class View:
    """What an annotator sees.

    Attributes:
        image: Name of the current image; None if there is none left for them.
        candidates: The classes on offer, in the order of their keys.
        offered: How many classes were offered for this image so far.
        upcoming: The image after this one, to be loaded ahead.
        finished: Images that have all the answers that are wanted.
        total: All images.
        mine: How many answers this annotator gave.
        skipped: How many images they skipped, which they can have again on request.
        rate: Their answers per hour; None before there are a few.
        per_class: How many images each class was given to, by anybody.
        undoable: Whether there is an answer to take back.
        notice: Something to tell them.
        bias: How the choice of images depends on them, if it does.
    """

    image: str | None
    candidates: tuple[str, ...]
    offered: int
    upcoming: str | None
    finished: int
    total: int
    mine: int
    skipped: int
    rate: float | None
    per_class: dict[str, int]
    undoable: bool
    notice: str = ""
    bias: str = ""


class Desk:
    """One project: images, rules, events and the label file. Many threads may use it.

    Args:
        names: The images.
        rules: What is offered and what may be answered.
        store: The events, perhaps of earlier sessions.
        labels: The label file, which is written anew from the events.
        overlap: How many people answer the same image.
        patience: Seconds after which what somebody has before them goes to others, if they do not
            ask for anything.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        names: Sequence[str],
        rules: Rules,
        store: Store,
        labels: LabelFile,
        *,
        overlap: Overlap | None = None,
        patience: float = 900.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules, self.labels = rules, labels
        self._store, self._patience, self._clock = store, patience, clock
        self._lock = threading.Lock()
        self._columns = {name: column for column, name in enumerate(rules.classes)}
        images = [names[row] for row in order(names, rules.seed)]
        shared = overlap or Overlap()
        wanted = [
            shared.people if shared.people > 1 and chance(name, rules.seed) < shared.share else 1
            for name in images
        ]
        self._pool = Pool(images, wanted)
        self._people: dict[str, Person] = defaultdict(lambda: Person(self._columns, self._clock()))
        self._answers: dict[str, list[Event]] = defaultdict(list)  # of each image, that count
        self._per_class: Counter[str] = Counter()
        self._expected: Mapping[str, float] = {}  # what a model expects of images it has chosen
        self._gains: dict[str, float] = {}  # of those that were given away for it
        self._bias = ""
        self._replay()

    def _replay(self) -> None:
        """Where earlier sessions have left off."""
        events = self._store.events()
        self._next = events[-1].number + 1 if events else 1
        self._requests = self._store.requests()
        counted = {event.number for event in counting(events)}
        for event in events:
            self._people[event.annotator].note(event)
            if event.number in counted:
                self._pool.replay(event)
                self._count(event)
        self.labels.fill(answers[0] for answers in self._answers.values() if answers)

    # -- what the server calls ---------------------------------------------------------------------

    def look(self, who: str) -> View:
        """What this annotator has before them; the first image if they are new."""
        with self._lock:
            self._arrive(who)
            self._show_current(who)
            return self._view(who)

    def refresh(self, who: str, image: str) -> View:
        """Other candidates for the current image."""
        with self._lock:
            self._arrive(who)
            if self._is_current(who, image) and not self.rules.everything:
                self._keep([self._drawn(who, image, "refresh", self._people[who].given)])
            return self._view(who)

    def answer(
        self,
        who: str,
        image: str,
        kind: Answer,
        *,
        present: Sequence[str] = (),
        absent: Sequence[str] = (),
        key: int | None = None,
        seconds: float | None = None,
        request: str | None = None,
    ) -> View:
        """Keep an answer, and show the next image.

        Args:
            who: The annotator.
            image: The image that was answered.
            kind: What was answered.
            present: Classes that are there.
            absent: Classes that are not.
            key: Place of the chosen class among the candidates, if a key or its button chose it.
            seconds: Time on screen.
            request: A name for this answer that the page invents: sent again with the same name,
                it is kept once.

        Raises:
            UsageError: The rules do not allow this answer.
            NoSpaceError: The disk is full; the same call may be tried again.
        """
        with self._lock:
            self._arrive(who)
            if request is not None and request in self._requests:
                self.labels.settle()
                return self._view(who)
            if not self._is_current(who, image):
                self._show_current(who)
                return self._view(who, TAKEN)
            offers = self._people[who].offers[image]
            check_answer(self.rules, kind, offers, present, absent, key)
            answer = self._event(
                who, image, kind, candidates=offers[-1], present=tuple(present),
                absent=tuple(absent), key=key, seconds=seconds,
            )  # fmt: skip
            self._keep([answer, *self._following(answer)], request)
            if kind != "skip":
                self.labels.put(self._answers[image][0])
            return self._view(who)

    def undo(self, who: str, request: str | None = None) -> View:
        """Take the last answer back: its image is the current one again."""
        with self._lock:
            self._arrive(who)
            answers = self._people[who].answers
            if request is not None and request in self._requests:
                self.labels.settle()
            elif answers and not self._pool.undo(who, answers[-1].image, answers[-1].kind):
                self._people[who].forget()
                return self._view(who, SKIPPED_TAKEN)
            elif answers:
                self._take_back(answers[-1], request)
            return self._view(who)

    def reopen(self, who: str) -> View:
        """Show the images again that this annotator skipped."""
        with self._lock:
            self._arrive(who)
            self._pool.reopen(who)
            self._show_current(who)
            return self._view(who)

    def prefer(self, expected: Mapping[str, float], bias: str) -> None:
        """Let these images come first, in this order; what people have before them stays.

        Args:
            expected: Each image and what is expected to be learnt of it, which the record keeps.
            bias: What to tell people about it.
        """
        with self._lock:
            self._pool.prefer(list(expected))
            self._expected, self._bias = expected, bias

    def tell(self, bias: str) -> None:
        """Tell people something else about the choice of images."""
        self._bias = bias

    @property
    def unfinished(self) -> list[str]:
        """The images that lack answers, in their seeded order."""
        with self._lock:
            return self._pool.unfinished

    @property
    def counts(self) -> list[int]:
        """How many images each class was given to."""
        with self._lock:
            return [self._per_class[name] for name in self.rules.classes]

    @property
    def progress(self) -> tuple[int, int]:
        """How many images have all the answers that are wanted, and how many there are."""
        return self._pool.finished, len(self._pool)

    # -- inside the lock ---------------------------------------------------------------------------

    def _arrive(self, who: str) -> None:
        """Somebody asks for something: what others left long ago is free for them."""
        now = self._clock()
        self._people[who].active = now
        for name, person in self._people.items():
            if now - person.active > self._patience:
                self._pool.abandon(name)
                person.current = None

    def _is_current(self, who: str, image: str) -> bool:
        return self._people[who].current == image and self._pool.holds(who, image)

    def _show_current(self, who: str) -> None:
        """Make sure that there is an image before them, and that this is on the disk."""
        image = next(iter(self._pool.held(who)), None)
        # What they lost and are given again was before them once, too: it is an event of its own.
        if image is None or self._people[who].current != image:
            image = image or self._next_image(who)
            if image is not None:
                self._keep([self._shown(who, image, self._people[who].given)])

    def _next_image(self, who: str) -> str | None:
        """Give somebody one more image, and remember if it is for what a model expects of it."""
        image = self._pool.next(who)
        if image is not None and image in self._expected:
            self._gains[image] = self._expected[image]
        return image

    def _following(self, answer: Event) -> list[Event]:
        """The event of the image that is shown after an answer; none if there is no image left."""
        who, held = answer.annotator, self._pool.held(answer.annotator)
        image = held[1] if len(held) > 1 else self._next_image(who)
        given = self._people[who].given if answer.kind == "skip" else answer.present
        return [] if image is None else [self._shown(who, image, given, after=1)]

    def _shown(self, who: str, image: str, given: Sequence[str], after: int = 0) -> Event:
        """An image is shown, with the candidates that it had if it was shown before."""
        known = self._people[who].offers.get(image)
        if known:
            return self._event(who, image, "shown", candidates=known[-1], after=after)
        return self._drawn(who, image, "shown", given, after)

    def _drawn(
        self, who: str, image: str, kind: Kind, given: Sequence[str], after: int = 0
    ) -> Event:
        """An offer of new candidates."""
        person, columns = self._people[who], self._columns
        earlier = person.offers.get(image, [])
        drawn = offer(
            self.rules,
            person.counts,
            shown=[[columns[name] for name in names if name in columns] for names in earlier],
            given=[columns[name] for name in given if name in columns],
            draw=f"{who}/{image}",
        )
        names = tuple(self.rules.classes[column] for column in drawn)
        gain = self._gains.get(image) if kind == "shown" else None
        return self._event(who, image, kind, candidates=names, gain=gain, after=after)

    def _take_back(self, last: Event, request: str | None) -> None:
        who, image = last.annotator, last.image
        undo = self._event(who, image, "undo", undoes=last.number)
        again = self._event(who, image, "shown", candidates=last.candidates, after=1)
        try:
            self._keep([undo, again], request)
        except Exception:
            self._pool.replay(last)  # it still counts
            raise
        if last.kind != "skip":
            self._answers[image].remove(last)
            self._per_class.subtract(last.present)
            left = self._answers[image]
            self.labels.take_back(image, left[0] if left else None)

    def _keep(self, events: list[Event], request: str | None = None) -> None:
        """Events are on the disk first; only then they are acted on."""
        self._store.add(events, request)
        self._next += len(events)
        if request is not None:
            self._requests[request] = events[0].number
        for event in events:
            self._people[event.annotator].note(event)
            if event.kind in ANSWERS:
                self._pool.replay(event)
                self._count(event)

    def _count(self, event: Event) -> None:
        if event.kind in (*ANSWERS, "import") and event.kind != "skip":
            self._answers[event.image].append(event)
            self._per_class.update(event.present)

    def _event(self, who: str, image: str, kind: Kind, *, after: int = 0, **rest: Any) -> Event:
        return Event(self._next + after, self._clock(), who, image, kind, **rest)

    def _view(self, who: str, notice: str = "") -> View:
        person, held = self._people[who], self._pool.held(who)
        current = held[0] if held and held[0] == person.current else None
        if current is not None and len(held) == 1:
            self._next_image(who)
            held = self._pool.held(who)
        offers = [] if current is None else person.offers[current]
        return View(
            image=current,
            candidates=offers[-1] if offers else (),
            offered=len({name for names in offers for name in names}),
            upcoming=held[1] if current is not None and len(held) > 1 else None,
            finished=self._pool.finished,
            total=len(self._pool),
            mine=person.labelled,
            skipped=self._pool.skipped(who),
            rate=person.rate,
            per_class={name: self._per_class[name] for name in self.rules.classes},
            undoable=bool(person.answers),
            notice=notice,
            bias=self._bias,
        )

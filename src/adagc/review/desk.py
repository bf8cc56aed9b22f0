"""The work of all reviewers: what each sees, what each says, kept before it is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adagc.errors import UsageError
from adagc.review.questions import Suggestion
from adagc.review.record import Event, Kind, Store
from adagc.review.speed import per_hour
from adagc.review.table_file import TableFile

TAKEN: Final = "That image went to somebody else meanwhile, so your answer was not kept."
UNDO_TAKEN: Final = "That image went to somebody else, so your answer there stays."
_RECENT: Final = 60  # answers from which the rate is measured


@dataclass(frozen=True)
class Asked:
    """A question as a reviewer sees it.

    Attributes:
        label: Name of the class.
        percent: How probable it is that the class is there; None in blind mode.
        value: What was answered: +1, -1, 0 for skipped, None if it is open.
    """

    label: str
    percent: int | None
    value: int | None


@dataclass(frozen=True)
class View:
    """What a reviewer sees.

    Attributes:
        image: Name of the current image; None if there is none left for them.
        marked: Classes that were marked on it before.
        questions: What is asked about it.
        upcoming: The image after this one, to be loaded ahead.
        finished: Images that are done.
        total: Images to review.
        answers: How often anybody said yes or no.
        yes: How often yes.
        mine: How often this reviewer said yes or no.
        rate: Their answers per hour; None before there are a few.
        per_class: How often yes, no and "skip" were said about each class.
        undoable: Whether there is something to take back.
        notice: Something to tell them.
    """

    image: str | None
    marked: tuple[str, ...]
    questions: tuple[Asked, ...]
    upcoming: str | None
    finished: int
    total: int
    answers: int
    yes: int
    mine: int
    rate: float | None
    per_class: Mapping[str, tuple[int, int, int]]
    undoable: bool
    notice: str = ""


@dataclass
class _Person:
    """What is remembered of one reviewer."""

    active: float
    current: str | None = None
    said: list[Event] = field(default_factory=list)  # that count, in their order
    answers: int = 0  # of yes and no in them
    times: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))


class Desk:
    """One review: questions, events and the label file. Many threads may use it.

    Args:
        plan: What is asked, in the order of the images.
        store: The events, perhaps of earlier sessions.
        labels: The label file, which is written anew from the events.
        blind: Whether probabilities are kept from reviewers, and nothing can be accepted by them.
        patience: Seconds after which what somebody has before them goes to others, if they do not
            ask for anything.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        plan: Sequence[Suggestion],
        store: Store,
        labels: TableFile,
        *,
        blind: bool = False,
        patience: float = 900.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.plan, self.blind, self.classes = tuple(plan), blind, labels.table.classes
        self._plan = {one.image: one for one in self.plan}
        self._store, self._labels = store, labels
        self._patience, self._clock = patience, clock
        self._lock = threading.Lock()
        self._people: dict[str, _Person] = defaultdict(lambda: _Person(self._clock()))
        self._said: dict[str, list[Event]] = defaultdict(list)  # about each image, that count
        self._open = dict.fromkeys(self._plan)  # images that are not done, in their order
        self._counts: dict[str, Counter[int]] = defaultdict(Counter)  # of values, per class
        events = store.events()
        self._next = events[-1].number + 1 if events else 1
        self._requests = store.requests()
        for event in events:
            self._note(event)
        labels.fill({image: self._values(image) for image in self._said})

    # -- what the server calls ---------------------------------------------------------------------

    def look(self, who: str) -> View:
        """What this reviewer has before them; the first image if they are new."""
        with self._lock:
            self._arrive(who)
            self._show_current(who)
            return self._view(who)

    def answer(
        self,
        who: str,
        image: str,
        label: str,
        value: int,
        *,
        seconds: float | None = None,
        request: str | None = None,
    ) -> View:
        """Keep what was said about one class; said again, the last answer counts.

        Args:
            who: The reviewer.
            image: The image before them.
            label: The class.
            value: +1 it is there, -1 it is not, 0 skipped.
            seconds: Time that it took.
            request: A name for this answer that the page invents: sent again with the same name,
                it is kept once.

        Raises:
            UsageError: The class is not asked about on this image.
            NoSpaceError: The disk is full; the same call may be tried again.
        """

        def said(one: Suggestion, values: Mapping[str, int]) -> dict[str, int]:
            if label not in {each.label for each in one.questions} or value not in (-1, 0, 1):
                raise UsageError(f"{label!r} is not asked about on image {image!r}")
            return {} if values.get(label) == value else {label: value}

        return self._say(who, image, "answer", said, seconds=seconds, request=request)

    def accept(
        self,
        who: str,
        image: str,
        threshold: int,
        *,
        seconds: float | None = None,
        request: str | None = None,
    ) -> View:
        """Yes to all open classes of the image that are at least as probable, in percent."""
        if self.blind:
            raise UsageError("in blind mode every class is answered by itself")

        def said(one: Suggestion, values: Mapping[str, int]) -> dict[str, int]:
            return {
                each.label: 1
                for each in one.questions
                if each.label not in values and each.percent >= threshold
            }

        return self._say(
            who, image, "accept", said, threshold=threshold, seconds=seconds, request=request
        )

    def go_on(
        self, who: str, image: str, *, seconds: float | None = None, request: str | None = None
    ) -> View:
        """The image is done, and the next one comes; classes that are still open are skipped."""

        def said(one: Suggestion, values: Mapping[str, int]) -> dict[str, int]:
            return {each.label: 0 for each in one.questions if each.label not in values}

        return self._say(who, image, "next", said, seconds=seconds, request=request)

    def undo(self, who: str, request: str | None = None) -> View:
        """Take back what was done last: an answer, an acceptance, or going on to another image."""
        with self._lock:
            self._arrive(who)
            person = self._people[who]
            if request is not None and request in self._requests:
                self._labels.settle()
            elif person.said:
                last = person.said[-1]
                if last.image in self._held(but=who):
                    self._forget(person)
                    return self._view(who, UNDO_TAKEN)
                undo = self._event(who, last.image, "undo", undoes=last.number)
                again = [] if person.current == last.image else [self._shown(who, last.image, 1)]
                self._keep([undo, *again], request)
                self._labels.put(last.image, self._values(last.image))
            return self._view(who)

    @property
    def progress(self) -> tuple[int, int]:
        """How many images are done, and how many there are."""
        return len(self.plan) - len(self._open), len(self.plan)

    def asked(self, image: str | None) -> tuple[str, ...]:
        """The classes that are asked about on an image; none if it is not reviewed."""
        one = self._plan.get(image or "")
        return () if one is None else tuple(each.label for each in one.questions)

    # -- inside the lock ---------------------------------------------------------------------------

    def _say(
        self,
        who: str,
        image: str,
        kind: Kind,
        said: Callable[[Suggestion, Mapping[str, int]], dict[str, int]],
        *,
        request: str | None,
        **rest: Any,
    ) -> View:
        with self._lock:
            self._arrive(who)
            if request is not None and request in self._requests:
                self._labels.settle()
                return self._view(who)
            if self._people[who].current != image:
                self._show_current(who)
                return self._view(who, TAKEN)
            answers = said(self._plan[image], self._values(image))
            if answers or kind == "next":
                event = self._event(who, image, kind, answers=answers, **rest)
                following = []
                if kind == "next":
                    coming = next(self._free(who, but=image), None)
                    following = [] if coming is None else [self._shown(who, coming, 1)]
                self._keep([event, *following], request)
                self._labels.put(image, self._values(image))
            return self._view(who)

    def _arrive(self, who: str) -> None:
        """Somebody asks for something: what others left long ago is free for them."""
        now = self._clock()
        self._people[who].active = now
        for person in self._people.values():
            if now - person.active > self._patience:
                person.current = None

    def _held(self, but: str) -> set[str | None]:
        """Images that others have before them."""
        return {person.current for name, person in self._people.items() if name != but}

    def _free(self, who: str, but: str | None = None) -> Any:
        """Images that this reviewer may get, in their order."""
        held = self._held(but=who)
        return (image for image in self._open if image != but and image not in held)

    def _show_current(self, who: str) -> None:
        """Make sure that there is an image before them, and that this is on the disk."""
        if self._people[who].current is None:
            image = next(self._free(who), None)
            if image is not None:
                self._keep([self._shown(who, image)])

    def _shown(self, who: str, image: str, after: int = 0) -> Event:
        asked = {each.label: 0 for each in self._plan[image].questions}
        return self._event(who, image, "shown", answers=asked, after=after)

    def _event(self, who: str, image: str, kind: Kind, *, after: int = 0, **rest: Any) -> Event:
        return Event(self._next + after, self._clock(), who, image, kind, **rest)

    def _keep(self, events: Sequence[Event], request: str | None = None) -> None:
        """Events are on the disk first; only then they are acted on."""
        self._store.add(events, request)
        self._next += len(events)
        if request is not None:
            self._requests[request] = events[0].number
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        """Act on an event, of now or of an earlier session."""
        person = self._people[event.reviewer]
        if event.kind == "shown":
            for other in self._people.values():  # it may have been left by somebody else
                if other.current == event.image:
                    other.current = None
            person.current = event.image
        elif event.kind == "undo":
            last = person.said[-1] if person.said else None
            while last is not None and last.number != event.undoes:
                self._forget(person)  # it could not be taken back
                last = person.said[-1] if person.said else None
            if last is not None:
                before = self._values(event.image)
                self._said[event.image].remove(last)
                self._forget(person)
                self._recount(event.image, before)
        else:
            before = self._values(event.image)
            self._said[event.image].append(event)
            self._recount(event.image, before)
            person.said.append(event)
            count = sum(value != 0 for value in event.answers.values())
            person.answers += count
            person.times.append((event.time, count))
            if event.kind == "next":
                person.current = None

    def _forget(self, person: _Person) -> None:
        """The last thing they did no longer counts, or can no longer be taken back."""
        event = person.said.pop()
        person.answers -= sum(value != 0 for value in event.answers.values())

    def _recount(self, image: str, before: Mapping[str, int]) -> None:
        """Counts and progress after the answers about an image have changed."""
        for label, value in before.items():
            self._counts[label][value] -= 1
        for label, value in self._values(image).items():
            self._counts[label][value] += 1
        done = any(event.kind == "next" for event in self._said[image])
        if done:
            self._open.pop(image, None)
        elif image in self._plan and image not in self._open:
            self._open = {one: None for one in self._plan if one in self._open or one == image}

    def _values(self, image: str) -> dict[str, int]:
        """What counts of what was said about an image."""
        found: dict[str, int] = {}
        for event in self._said.get(image, ()):
            found |= event.answers
        return found

    def _view(self, who: str, notice: str = "") -> View:
        person = self._people[who]
        image = person.current
        one = None if image is None else self._plan[image]
        values = {} if image is None else self._values(image)
        counts = {each: self._counts[each] for each in self.classes}
        yes = sum(count[1] for count in counts.values())
        return View(
            image=image,
            marked=() if one is None else one.marked,
            questions=()
            if one is None
            else tuple(
                Asked(each.label, None if self.blind else each.percent, values.get(each.label))
                for each in one.questions
            ),
            upcoming=next(self._free(who, but=image), None),
            finished=len(self.plan) - len(self._open),
            total=len(self.plan),
            answers=yes + sum(count[-1] for count in counts.values()),
            yes=yes,
            mine=person.answers,
            rate=per_hour(person.times),
            per_class={each: (count[1], count[-1], count[0]) for each, count in counts.items()},
            undoable=bool(person.said),
            notice=notice,
        )

"""What is remembered of each annotator: their offers, their answers, how fast they work."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from adagc.annotate.events import Event

ANSWERS: Final = ("choose", "none", "skip", "absent")
_PAUSE: Final = 120.0  # seconds without an answer that count as a pause, not as work
_RECENT: Final = 60  # answers from which the rate is measured
_FEWEST: Final = 3  # answers before a rate is shown


class Person:
    """One annotator, as far as events of theirs say.

    Args:
        columns: The place of each class.
        now: Since when they are active, in seconds since 1970.
    """

    def __init__(self, columns: Mapping[str, int], now: float) -> None:
        self._columns = columns
        self.counts = [0] * len(columns)  # for how many images each class was offered
        self.offers: dict[str, list[tuple[str, ...]]] = {}  # of each image they were shown
        self.current: str | None = None  # the image before them
        self.answers: list[Event] = []  # that count, in their order
        self.labelled = 0  # how many of these are no skipped images
        self.active = now  # when they last asked for something
        self._work: deque[float] = deque(maxlen=_RECENT)  # seconds from answer to answer
        self._last: float | None = None

    def note(self, event: Event) -> None:
        """One more event of theirs; an undo takes back their last answer."""
        if event.kind == "shown":
            self.current = event.image
        if event.kind in ("shown", "refresh"):
            self._note_offer(event)
        elif event.kind in ANSWERS:
            self.current = None
            self.answers.append(event)
            self.labelled += event.kind != "skip"
            if self._last is not None and event.time - self._last < _PAUSE:
                self._work.append(event.time - self._last)
            self._last = event.time
        elif event.kind == "undo" and self.answers and self.answers[-1].number == event.undoes:
            self.forget()

    def forget(self) -> None:
        """Their last answer no longer counts, or can no longer be taken back."""
        self.labelled -= self.answers.pop().kind != "skip"

    def _note_offer(self, event: Event) -> None:
        offers = self.offers.setdefault(event.image, [])
        if offers and offers[-1] == event.candidates:
            return  # the same again, after an undo or a new start
        earlier = {name for names in offers for name in names}
        offers.append(event.candidates)
        for name in event.candidates:
            if name not in earlier and name in self._columns:
                self.counts[self._columns[name]] += 1

    @property
    def given(self) -> tuple[str, ...]:
        """The classes of their last answer; a skipped image is none."""
        return next((each.present for each in reversed(self.answers) if each.kind != "skip"), ())

    @property
    def rate(self) -> float | None:
        """Their answers per hour of work, without pauses; None before there are a few."""
        seconds = sum(self._work)
        return 3600 * len(self._work) / seconds if len(self._work) >= _FEWEST and seconds else None

"""Events of annotators as arrays: what was offered and chosen each time somebody saw an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.annotate.events import Event, counting
from adagc.errors import DataError
from adagc.suggest import hint_or_list

_ANSWERS = ("choose", "none", "skip", "absent")


@dataclass(frozen=True, eq=False)
class Visits:
    """One row for each image that an annotator answered, in the order of the answers.

    Attributes:
        images: Name of the image.
        annotators: Who answered.
        classes: Names of all classes.
        offered: (V, C) whether the class was on offer, at any time before the answer.
        last: (V, C) whether it was on offer when the answer was given.
        present: (V, C) whether it was said to be there.
        absent: (V, C) whether it was said not to be there.
        none: (V,) whether none of all classes was said to be there.
        skipped: (V,) whether there was no answer.
        key: (V,) place of the chosen class among the candidates; -1 without a key, or if several
            classes were chosen.
        candidates: (V,) number of classes on offer when the answer was given.
        refreshes: (V,) how often others were asked for.
        seconds: (V,) time on screen before the answer; NaN if it was not measured.
        time: (V,) when the answer was given, in seconds since 1970.
        active: (V,) whether the image was shown because of what a model expected to learn from it.
    """

    images: tuple[str, ...]
    annotators: tuple[str, ...]
    classes: tuple[str, ...]
    offered: NDArray[np.bool_]
    last: NDArray[np.bool_]
    present: NDArray[np.bool_]
    absent: NDArray[np.bool_]
    none: NDArray[np.bool_]
    skipped: NDArray[np.bool_]
    key: NDArray[np.int64]
    candidates: NDArray[np.int64]
    refreshes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    time: NDArray[np.float64]
    active: NDArray[np.bool_]

    @property
    def single(self) -> NDArray[np.bool_]:
        """(V,) whether exactly one class was said to be there."""
        one: NDArray[np.bool_] = self.present.sum(axis=1) == 1
        return one

    @property
    def chosen(self) -> NDArray[np.int64]:
        """(V,) the class that was said to be there; the first of several, -1 for none."""
        return np.where(self.present.any(axis=1), self.present.argmax(axis=1), -1)


@dataclass
class _Open:
    """What has happened so far between an annotator and an image."""

    offered: set[int]
    last: tuple[int, ...] = ()
    refreshes: int = 0
    active: bool = False
    answers: list[Event] | None = None


def visits(events: Sequence[Event], classes: Sequence[str]) -> Visits:
    """What was offered and answered, from events that count; reviews and imports are left out.

    Several answers of a person to an image are one visit: all classes that were said to be there
    count. An image that was only shown, or of which all answers were taken back, is no visit.

    Raises:
        DataError: An event names a class that is not among the classes.
    """
    place = {name: c for c, name in enumerate(classes)}

    def numbers(names: Sequence[str], event: Event) -> tuple[int, ...]:
        try:
            return tuple(place[name] for name in names)
        except KeyError as error:
            name = str(error.args[0])
            raise DataError(
                f"event {event.number} names the class {name!r}, which is not among the classes"
                + hint_or_list(name, classes, "classes")
            ) from None

    open_: dict[tuple[str, str], _Open] = {}
    ordered = sorted(counting(list(events)), key=lambda event: event.number)
    for event in ordered:
        if event.kind == "review":
            continue
        state = open_.setdefault((event.annotator, event.image), _Open(set()))
        shown = numbers(event.candidates, event)
        if shown:
            state.offered.update(shown)
            state.last = shown
        state.active |= event.gain is not None
        if event.kind == "refresh":
            state.refreshes += 1
        elif event.kind in _ANSWERS:
            state.answers = [*(state.answers or []), event]
    done = [(who, state) for who, state in open_.items() if state.answers]
    done.sort(key=lambda one: (one[1].answers or [])[-1].number)
    shape = (len(done), len(classes))
    offered, last, present, absent = (np.zeros(shape, dtype=np.bool_) for _ in range(4))
    key = np.full(len(done), -1, dtype=np.int64)
    for row, (_, state) in enumerate(done):
        answers = state.answers or []
        said = {c for event in answers for c in numbers(event.present, event)}
        denied = {c for event in answers for c in numbers(event.absent, event)} - said
        for table, columns in (
            (offered, state.offered),
            (last, state.last),
            (present, said),
            (absent, denied),
        ):
            table[row, list(columns)] = True
        chosen = [event for event in answers if event.kind == "choose"]
        if len(chosen) == 1 and len(said) == 1 and chosen[0].key is not None:
            key[row] = chosen[0].key
    final = [(state.answers or [])[-1] for _, state in done]
    return Visits(
        images=tuple(image for (_, image), _ in done),
        annotators=tuple(name for (name, _), _ in done),
        classes=tuple(classes),
        offered=offered,
        last=last,
        present=present,
        absent=absent,
        none=np.array([e.kind == "none" for e in final], dtype=np.bool_) & ~present.any(axis=1),
        skipped=np.array(
            [all(e.kind == "skip" for e in state.answers or []) for _, state in done],
            dtype=np.bool_,
        ),
        key=key,
        candidates=last.sum(axis=1, dtype=np.int64),
        refreshes=np.array([state.refreshes for _, state in done], dtype=np.int64),
        seconds=np.array([_seconds(state.answers or []) for _, state in done], dtype=np.float64),
        time=np.array([event.time for event in final], dtype=np.float64),
        active=np.array([state.active for _, state in done], dtype=np.bool_),
    )


def _seconds(answers: Sequence[Event]) -> float:
    """Time on screen before the answer; of several answers until the last one."""
    known = [event.seconds for event in answers if event.seconds is not None]
    return max(known) if known else float("nan")

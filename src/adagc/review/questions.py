"""What people are asked: classes of images, as plain data that a file can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Question:
    """One class on one image: is it there?

    Attributes:
        label: Name of the class.
        probability: How probable it is that it is there.
        blind: Whether it was drawn at random instead of suggested. Who answers must not see this,
            nor the probability in blind mode.
    """

    label: str
    probability: float
    blind: bool = False

    @property
    def percent(self) -> int:
        """The probability as it is shown, by which classes are accepted together."""
        return round(100 * self.probability)


@dataclass(frozen=True)
class Suggestion:
    """What to ask about one image.

    Attributes:
        image: Name of the image.
        marked: Classes that were said to be there before.
        questions: What to ask, the most probable first; in blind mode in random order.
    """

    image: str
    marked: tuple[str, ...]
    questions: tuple[Question, ...]


def to_plain(plan: Iterable[Suggestion]) -> list[Any]:
    """Suggestions as lists of names and numbers, for JSON."""
    return [
        [
            one.image,
            list(one.marked),
            [[each.label, round(each.probability, 4), int(each.blind)] for each in one.questions],
        ]
        for one in plan
    ]


def from_plain(values: Sequence[Any]) -> tuple[Suggestion, ...]:
    """The suggestions that `to_plain` has made lists of."""
    return tuple(
        Suggestion(
            image,
            tuple(marked),
            tuple(Question(label, chance, bool(blind)) for label, chance, blind in questions),
        )
        for image, marked, questions in values
    )


def joined(before: Sequence[Suggestion], now: Iterable[Suggestion]) -> tuple[Suggestion, ...]:
    """The suggestions that were made before, and after them those about other images."""
    known = {one.image for one in before}
    return (*before, *(one for one in now if one.image not in known))

"""What the record of a review tells: of the model's suggestions, and of those who answered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adagc.labels import locate, read_labels
from adagc.metrics.shares import Estimate, wilson
from adagc.review.answers import NO, SKIP, YES, Answer, Precision, precision
from adagc.review.questions import Question
from adagc.review.record import Event, Record, counting
from adagc.review.speed import per_hour


@dataclass(frozen=True)
class ClassCount:
    """What was said about one class, random questions of blind mode left out.

    Attributes:
        label: Name of the class.
        yes: How often it was said to be there.
        no: How often not.
        skipped: How often it was skipped.
        expected: How many of the answers should be yes by the model's probabilities.
        share: Share of yes.
    """

    label: str
    yes: int
    no: int
    skipped: int
    expected: float
    share: Estimate


@dataclass(frozen=True)
class Reviewer:
    """One person: how many classes they answered with yes or no, and how many per hour of work."""

    name: str
    answers: int
    per_hour: float | None


@dataclass(frozen=True)
class Conflict:
    """Answers about one entry that do not go together.

    Attributes:
        image: Name of the image.
        label: Name of the class.
        said: Who said what, in the order in which they said it; "labels" are those of the run.
    """

    image: str
    label: str
    said: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Measured:
    """All of it."""

    images: int  # that are done
    total: int
    precision: Precision
    expected: float | None  # share of yes among suggestions by the model's probabilities
    accepted: int  # answers that were given together, by a threshold
    undone: int
    classes: tuple[ClassCount, ...]  # those that were asked about
    reviewers: tuple[Reviewer, ...]
    conflicts: tuple[Conflict, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data; what nobody knows is None."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def measure(record: Record, labels: Path | None = None) -> Measured:
    """Measure a review.

    Args:
        record: Its events and questions.
        labels: Its label file, to find answers that contradict a label of the run; without it, or
            if it does not exist, such answers are not looked for.
    """
    events, answers = counting(record.events), record.answers
    last = {(each.image, each.label): each for each in answers}
    asked = {(one.image, each.label): each for one in record.plan for each in one.questions}
    suggested = {key: each for key, each in last.items() if not each.blind and key in asked}
    chances = [asked[key].probability for key, each in suggested.items() if each.value != SKIP]
    finished = {event.image for event in events if event.kind == "next"}
    return Measured(
        images=len(finished),
        total=len(record.plan),
        precision=precision(answers),
        expected=sum(chances) / len(chances) if chances else None,
        accepted=sum(len(event.answers) for event in events if event.kind == "accept"),
        undone=sum(event.kind == "undo" for event in record.events),
        classes=_classes(record.classes, suggested, asked),
        reviewers=_reviewers(events),
        conflicts=(*_between_people(events), *_with_labels(list(last.values()), labels)),
    )


def _classes(
    classes: Sequence[str],
    last: dict[tuple[str, str], Answer],
    asked: dict[tuple[str, str], Question],
) -> tuple[ClassCount, ...]:
    found = []
    for label in classes:
        mine = {key: each for key, each in last.items() if each.label == label}
        if not mine:
            continue
        values = Counter(each.value for each in mine.values())
        expected = sum(asked[key].probability for key, each in mine.items() if each.value != SKIP)
        share = wilson(values[YES], values[YES] + values[NO])
        found.append(
            ClassCount(label, values[YES], values[NO], values[SKIP], round(expected, 1), share)
        )
    return tuple(found)


def _reviewers(events: Sequence[Event]) -> tuple[Reviewer, ...]:
    times: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        count = sum(value != SKIP for value in event.answers.values())
        times[event.reviewer].append((event.time, count))
    return tuple(
        Reviewer(name, sum(count for _, count in moments), per_hour(moments))
        for name, moments in sorted(times.items())
    )


def _between_people(events: Sequence[Event]) -> list[Conflict]:
    """Entries about which two people said different things; one may change their mind."""
    said: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for event in events:
        for label, value in event.answers.items():
            if value != SKIP:
                said[event.image, label][event.reviewer] = value
    return [
        Conflict(image, label, tuple(of.items()))
        for (image, label), of in said.items()
        if len(set(of.values())) > 1
    ]


def _with_labels(answers: Sequence[Answer], labels: Path | None) -> list[Conflict]:
    """Answers that the label file does not hold, because a label of the run contradicts them."""
    if labels is None or labels.suffix == ".sqlite" or not labels.exists():
        return []
    table = read_labels(labels)
    found = []
    images = list(dict.fromkeys(each.image for each in answers))
    rows = dict(zip(images, locate(table, images, unknown="ignore").tolist(), strict=True))
    for each in answers:
        row, column = rows[each.image], table.classes.index(each.label)
        kept = 0 if row < 0 else int(table.values[row, column])
        if each.value * kept < 0:
            found.append(
                Conflict(each.image, each.label, (("labels", kept), ("answer", each.value)))
            )
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value != value:  # no number
        return None
    return value

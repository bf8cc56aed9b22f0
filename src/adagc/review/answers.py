"""What people say to suggestions: a label table that training takes again, and what it tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from adagc.errors import LabelFileError, UsageError
from adagc.labels import LabelTable
from adagc.metrics.shares import Estimate, clustered
from adagc.suggest import hint_or_list

YES, NO, SKIP = 1, -1, 0


@dataclass(frozen=True)
class Answer:
    """What somebody said about one class on one image.

    Attributes:
        image: Name of the image.
        label: Name of the class.
        value: +1 it is there, -1 it is not, 0 skipped.
        blind: Whether the class was drawn at random instead of suggested by the model.
    """

    image: str
    label: str
    value: int
    blind: bool = False


def reviewed(table: LabelTable, answers: Iterable[Answer]) -> LabelTable:
    """The labels with these answers: +1 and -1 are added, and what was observed before stays.

    Of several answers about one entry the last one counts; one that is skipped then is not known.
    Images that the table does not have are added to its end. The result is a multi-label table that
    training takes again.

    Args:
        table: The labels that the model was trained with.
        answers: Answers in the order in which they were given.

    Raises:
        LabelFileError: An answer is about a class that the table does not have.
    """
    column = {name: c for c, name in enumerate(table.classes)}
    rows = {name: row for row, name in enumerate(table.images)}
    said: dict[tuple[int, int], int] = {}
    for answer in answers:
        if answer.label not in column:
            raise LabelFileError(
                f"an answer about image {answer.image!r} names the class {answer.label!r}, which"
                " the labels do not have" + hint_or_list(answer.label, table.classes, "classes")
            )
        if answer.value not in (YES, NO, SKIP):
            raise UsageError(
                f"the answer about {answer.label!r} on image {answer.image!r} is {answer.value}:"
                " give 1 (there), -1 (not there) or 0 (skipped)"
            )
        if answer.value != SKIP:
            row = rows.setdefault(answer.image, len(rows))
            said[row, column[answer.label]] = answer.value
        elif answer.image in rows:
            said.pop((rows[answer.image], column[answer.label]), None)
    values = np.zeros((len(rows), len(table.classes)), dtype=np.int8)
    values[: len(table)] = table.values
    if said:
        where = np.array(list(said), dtype=np.int64).T
        given = np.array(list(said.values()), dtype=np.int8)
        seen = values[where[0], where[1]]
        values[where[0], where[1]] = np.where(seen != 0, seen, given)
    meta = {**table.meta, "reviewed": f"{len(said)} answers on {len({r for r, _ in said})} images"}
    return LabelTable(tuple(rows), table.classes, values, "multi", meta)


def conflicts(table: LabelTable, answers: Sequence[Answer]) -> list[Answer]:
    """Answers that contradict what was observed before, which `reviewed` keeps as it was."""
    column = {name: c for c, name in enumerate(table.classes)}
    rows = {name: row for row, name in enumerate(table.images)}
    return [
        answer
        for answer in answers
        if answer.image in rows
        and answer.value != SKIP
        and table.values[rows[answer.image], column[answer.label]] * answer.value < 0
    ]


@dataclass(frozen=True)
class Precision:
    """How often suggested classes are there, and classes drawn at random, as people said."""

    suggested: Estimate  # share of the suggestions that were answered that are there
    random: Estimate  # share of the classes drawn at random, which blind mode mixes in
    skipped: int

    @property
    def sentence(self) -> str:
        """What this says, in plain words."""
        said = f"{_words(self.suggested)} of suggested classes are there"
        if not self.random.count:
            return f"{said}; without blind mode nobody knows how many of others are"
        return f"{said}, and {_words(self.random)} of classes drawn at random"


def precision(answers: Sequence[Answer]) -> Precision:
    """Precision of suggestions and the rate of random classes, with intervals.

    Answers about one image are alike, for which the intervals allow. Of several answers about one
    entry the last one counts.
    """
    last = {(answer.image, answer.label): answer for answer in answers}
    images = {name: i for i, name in enumerate(dict.fromkeys(a.image for a in answers))}
    hits, counts = (np.zeros((2, len(images)), dtype=np.int64) for _ in range(2))
    for answer in last.values():
        if answer.value != SKIP:
            counts[int(answer.blind), images[answer.image]] += 1
            hits[int(answer.blind), images[answer.image]] += answer.value == YES
    skipped = sum(answer.value == SKIP for answer in last.values())
    return Precision(clustered(hits[0], counts[0]), clustered(hits[1], counts[1]), skipped)


def _words(share: Estimate) -> str:
    if not share.count:
        return "nobody knows how many"
    noun = "answer" if share.count == 1 else "answers"
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%}, {share.count:,} {noun})"

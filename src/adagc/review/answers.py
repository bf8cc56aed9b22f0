"""What people say to suggestions: a label table that training takes again, and what it tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from adagc.errors import LabelFileError, UsageError
from adagc.labels import LabelTable
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

    Of several answers about one entry the last one counts; one that was skipped changes nothing.
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

"""The label file that training reads: valid after every label, and cheap to keep so."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from adagc.annotate.events import Event
from adagc.annotate.protocol import Rules
from adagc.atomic import append, encoded, write_bytes
from adagc.errors import UsageError


class LabelFile:
    """One row per labelled image, in the order of the labels.

    A new label is one line more; only what takes a label back writes the file anew. If a write
    fails, the next one writes the whole file, so that no later label hides a missing one.

    Args:
        path: The file.
        rules: Decide its form: `image,label`, or `image,labels` if an answer may name several
            classes or absent ones.
    """

    def __init__(self, path: Path, rules: Rules) -> None:
        self.path = path
        self._rules = rules
        self._rows: dict[str, bytes] = {}
        self._whole = False  # whether the file holds these rows and nothing else
        odd = [name for name in rules.classes if ";" in name or name.startswith("!")]
        if odd and not rules.simple:
            raise UsageError(
                f"--classes: {odd[0]!r} cannot stand in a list of labels (; and a leading ! have a"
                " meaning there); rename it"
            )

    def __len__(self) -> int:
        return len(self._rows)

    def fill(self, answers: Iterable[Event]) -> None:
        """Write the file from these answers, of which the first of each image counts."""
        self._rows = {}
        for event in answers:
            row = self._row(event)
            if row is not None:
                self._rows.setdefault(event.image, row)
        self._write()

    def put(self, answer: Event) -> None:
        """Add the answer unless the image has one; it is on the disk when this returns.

        NoSpaceError if the disk is full; the same call then tries again.
        """
        row = self._row(answer)
        if self._rows.get(answer.image) is None and row is not None:
            self._rows[answer.image] = row
            if self._whole:
                self._whole = False
                append(self.path, row)
                self._whole = True
        self.settle()

    def settle(self) -> None:
        """Make good for a write that failed."""
        if not self._whole:
            self._write()

    def take_back(self, image: str, instead: Event | None) -> None:
        """The answer for an image no longer counts; perhaps one of somebody else does instead."""
        row = None if instead is None else self._row(instead)
        before = self._rows.pop(image, None)
        if row is not None:
            self._rows[image] = row
        if before != row or not self._whole:
            self._write()

    def _write(self) -> None:
        self._whole = False
        write_bytes(self.path, self._head() + b"".join(self._rows.values()))
        self._whole = True

    def _head(self) -> bytes:
        # The classes, because a file without labels of a class would not say that there is one.
        named = _line(self._rules.classes)
        return (
            b"# classes: " + named + (b"image,label\n" if self._rules.simple else b"image,labels\n")
        )

    def _row(self, answer: Event) -> bytes | None:
        """The line of an answer; None if the form of the file has no line for it."""
        if self._rules.simple:
            return _line((answer.image, answer.present[0])) if answer.present else None
        absent = self._rules.classes if answer.kind == "none" else answer.absent
        if not answer.present and not absent:
            return None
        return _line((answer.image, ";".join([*answer.present, *(f"!{name}" for name in absent)])))


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return encoded(text.getvalue())

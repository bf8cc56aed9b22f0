"""The label file of a review: the labels of the run and the answers, whole after every answer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import encoded, write_bytes
from adagc.errors import LabelFileError
from adagc.labels import LabelTable
from adagc.suggest import hint_or_list


class TableFile:
    """A row per image and a column per class, with 1, 0 and -1, as `adagc train --labels` takes it.

    What was observed before stays, whatever is answered. Images without any label and without an
    answer have no row of their own unless the labels had one. If a write fails, the next one writes
    what is missing, since every write is that of the whole file.

    Args:
        path: The file, which is replaced as a whole.
        table: The labels before the review.
        rows: Row of the table for each image; the names of images may differ from those in the
            labels. Images that it does not name are added to the end under their own name.
    """

    def __init__(self, path: Path, table: LabelTable, rows: Mapping[str, int]) -> None:
        self.path, self.table = path, table
        self._places = rows
        self._columns = {name: column for column, name in enumerate(table.classes)}
        self._lines = [
            _line((name, *values))
            for name, values in zip(table.images, table.values.tolist(), strict=True)
        ]
        self._added: dict[str, bytes] = {}  # lines of images that the labels do not have
        self._counts: dict[str, int] = {}  # answers of yes and no per image
        self._whole = False  # whether the file holds all of this

    def fill(self, answers: Mapping[str, Mapping[str, int]]) -> None:
        """Write the file with these answers of each image."""
        for image, said in answers.items():
            self._set(image, said)
        self._write()

    def put(self, image: str, said: Mapping[str, int]) -> None:
        """These are the answers about an image now; the file says so when this returns.

        NoSpaceError if the disk is full; the file is then what it was.
        """
        if self._set(image, said):
            self._whole = False
        self.settle()

    def settle(self) -> None:
        """Make good for a write that failed."""
        if not self._whole:
            self._write()

    def _set(self, image: str, said: Mapping[str, int]) -> bool:
        """Note the answers about an image; whether that changes the file."""
        odd = next((label for label in said if label not in self._columns), None)
        if odd is not None:
            raise LabelFileError(
                f"an answer about image {image!r} names the class {odd!r}, which the labels do not"
                " have" + hint_or_list(odd, self.table.classes, "classes")
            )
        known = {label: value for label, value in said.items() if value}
        before, count = self._counts.pop(image, 0), len(known)
        if count:
            self._counts[image] = count
        row = self._places.get(image)
        if row is None:
            old = self._added.get(image)
            if known:
                self._added[image] = self._changed(image, None, known)
            else:
                self._added.pop(image, None)
            return old != self._added.get(image)
        line = self._changed(self.table.images[row], self.table.values[row], known)
        changed = line != self._lines[row] or before != count
        self._lines[row] = line
        return changed

    def _changed(
        self, name: str, values: NDArray[np.int8] | None, said: Mapping[str, int]
    ) -> bytes:
        cells = [0] * len(self._columns) if values is None else values.tolist()
        for label, value in said.items():
            column = self._columns[label]
            cells[column] = cells[column] or value
        return _line((name, *cells))

    def _write(self) -> None:
        self._whole = False
        meta = {
            **self.table.meta,
            "reviewed": f"{sum(self._counts.values())} answers on {len(self._counts)} images",
        }
        head = "".join(f"# {key}: {value}".rstrip() + "\n" for key, value in meta.items())
        parts = (
            encoded(head),
            _line(("image", *self.table.classes)),
            *self._lines,
            *self._added.values(),
        )
        write_bytes(self.path, b"".join(parts))
        self._whole = True


def _line(cells: Iterable[str | int]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return encoded(text.getvalue())

"""Turn the lines of a label file into arrays, block by block; error messages name the line.

One record is one line: names cannot contain line breaks. A line break inside quotation marks is
therefore an error (usually a quotation mark that was never closed), and the line number of every
record follows from its position.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.errors import LabelFileError
from adagc.suggest import hint_or_list

# Records that are parsed at once: enough for fast conversion, few enough to fit into memory.
_BLOCK = 20_000

# Accepted cells. "1.0" is what spreadsheets and pandas write if a column once had an empty cell.
_SPELLINGS = {"1": 1, "+1": 1, "1.0": 1, "0": 0, "0.0": 0, "": 0, "-1": -1, "-1.0": -1}

ABSENT = "!"  # in a list of labels, before the name of a class that was seen to be absent
BETWEEN = ";"  # between the names in a list of labels


@dataclass(frozen=True)
class Records:
    """The part of a file below its header."""

    path: Path
    lines: Iterator[str]
    first_line: int
    delimiter: str
    columns: tuple[str, ...]  # names of all columns, the image column first

    def error(self, line: int, problem: str) -> LabelFileError:
        """An error whose message names the file, the line and the problem."""
        return LabelFileError(f"{self.path}, line {line}: {problem}")

    def blocks(self) -> Iterator[tuple[list[list[str]], list[int]]]:
        """Blocks of records as lists of cells, and the line number of each record.

        Every record has as many cells as the header. Empty lines and lines of empty cells, which
        spreadsheets often leave at the end, are skipped.
        """
        reader = csv.reader(self.lines, delimiter=self.delimiter, strict=True)
        start = self.first_line
        while True:
            rows: list[list[str]] = []
            problem = None
            try:
                rows.extend(islice(reader, _BLOCK))  # rows before an error are kept
            except csv.Error as error:
                problem = error
            broken = start + len(rows) if problem else None
            within = reader.line_num == start - self.first_line + len(rows) + 1
            if broken is not None and within and "field limit" in str(problem):
                most = f"{csv.field_size_limit():,}"
                raise self.error(broken, f"a cell has more than {most} characters; shorten it")
            # fewer records than lines were read: a record extends over several lines
            if reader.line_num != start - self.first_line + len(rows):
                spans = (
                    i for i, row in enumerate(rows) if any("\n" in c or "\r" in c for c in row)
                )
                broken = next((start + i for i in spans), broken)
            if broken is not None:
                raise self.error(
                    broken,
                    "a quotation mark opens a cell that does not end on this line; close it, or "
                    'write "" for a quotation mark inside a quoted name',
                )
            if not rows:
                return
            lines = range(start, start + len(rows))
            start += len(rows)
            kept = [
                i
                for i, row in enumerate(rows)
                if (len(row) > 1 and row[0]) or any(map(str.strip, row))
            ]
            if len(kept) < len(rows):
                rows, numbers = [rows[i] for i in kept], [lines[i] for i in kept]
            else:
                numbers = list(lines)
            self._check_cells(rows, numbers)
            yield rows, numbers

    def _check_cells(self, rows: list[list[str]], lines: list[int]) -> None:
        """Raise an error if a record has more or fewer cells than the header."""
        width = len(self.columns)
        if set(map(len, rows)) - {width}:
            i = next(i for i, row in enumerate(rows) if len(row) != width)
            remedy = (
                f"put names that contain {_spoken(self.delimiter)} in double quotes"
                if len(rows[i]) > width
                else f"separate the cells with {_spoken(self.delimiter)}, as in the header"
            )
            raise self.error(
                lines[i], f"{len(rows[i])} cells, but the header has {width}; {remedy}"
            )


@dataclass(frozen=True)
class Parsed:
    """The content of all records; see `LabelTable` for the attributes."""

    images: list[str]
    lines: NDArray[np.int64]  # (N,) line of each image in the file
    classes: tuple[str, ...]
    values: NDArray[np.int8]  # (N, C)


def parse_wide(records: Records, known: tuple[str, ...] | None) -> Parsed:
    """Parse the format "wide": one column per class with 1, 0, -1 or nothing (0).

    Args:
        records: The file below its header.
        known: All classes, in the order of the result; a class without a column is 0 for every
            image. None means the classes of the columns.
    """
    names = records.columns[1:]
    classes = names if known is None else known
    for name in names:
        if name not in classes:
            raise records.error(
                records.first_line - 1,
                f"unknown class {name!r}{hint_or_list(name, classes, 'classes')}",
            )
    images: list[str] = []
    lines: list[int] = []
    blocks: list[NDArray[np.int8]] = []
    cells = _Cells()
    for rows, numbers in records.blocks():
        images += [row.pop(0).strip() for row in rows]  # the label cells remain in the row
        lines += numbers
        flat = chain.from_iterable(rows)
        try:
            values = np.fromiter(map(cells.__getitem__, flat), np.int8, len(rows) * len(names))
        except ValueError:
            raise _bad_cell(records, rows, numbers, names, cells) from None
        blocks.append(values.reshape(len(rows), len(names)))
    check_images(records, images, lines)
    values = np.concatenate(blocks)
    if names != classes:
        spread: NDArray[np.int8] = np.zeros((len(images), len(classes)), dtype=np.int8)
        spread[:, [classes.index(name) for name in names]] = values
        values = spread
    return Parsed(images, np.array(lines, dtype=np.int64), classes, values)


def parse_single(records: Records, known: tuple[str, ...] | None) -> Parsed:
    """Parse the format "single": one label, or none, in the second column."""

    def split(cell: str, line: int) -> dict[str, int]:
        if BETWEEN in cell and (known is None or cell not in known):
            raise records.error(
                line,
                f"{cell!r} looks like several labels in a single-positive file; keep one of them, "
                "or name the column 'labels'",
            )
        return {cell: 1} if cell else {}

    return _parse_names(records, known, split)


def parse_list(records: Records, known: tuple[str, ...] | None) -> Parsed:
    """Parse the format "list": labels in the second column, ; between them, ! before absent."""

    def split(cell: str, line: int) -> dict[str, int]:
        values: dict[str, int] = {}
        for part in filter(None, map(str.strip, cell.split(BETWEEN))):
            name = part.removeprefix(ABSENT).strip()
            value = -1 if part.startswith(ABSENT) else 1
            if not name:
                raise records.error(line, f"no class name after {ABSENT!r}; complete or remove it")
            if values.setdefault(name, value) != value:
                raise records.error(
                    line, f"{name!r} is said to be both present and absent; remove one"
                )
        return values

    return _parse_names(records, known, split)


def _parse_names(
    records: Records,
    known: tuple[str, ...] | None,
    split: Callable[[str, int], dict[str, int]],
) -> Parsed:
    """Parse files that name their classes in the second column.

    Args:
        records: The file below its header.
        known: All classes, in the order of the result; None means the names used, sorted.
        split: Function from a cell and its line to the value of each class that the cell names; it
            is called once for each distinct cell.
    """
    images: list[str] = []
    lines: list[int] = []
    codes: list[NDArray[np.int64]] = []
    number_of: dict[str, int] = {}
    contents: list[dict[str, int]] = []
    for rows, numbers in records.blocks():
        images += [row[0].strip() for row in rows]
        lines += numbers
        cells = [row[1].strip() for row in rows]
        for cell, line in zip(cells, numbers, strict=True):
            if cell not in number_of:
                number_of[cell] = len(contents)
                contents.append(split(cell, line))
                _check_known(records, contents[-1], known, line)
        codes.append(np.fromiter(map(number_of.__getitem__, cells), np.int64, len(cells)))
    check_images(records, images, lines)
    classes = known
    if classes is None:
        # sorted, so that the order of the rows does not change the order of the classes
        classes = tuple(sorted({name for content in contents for name in content}))
        if not classes:
            raise LabelFileError(f"{records.path} names no label at all; add at least one")
    column = {name: c for c, name in enumerate(classes)}
    values: NDArray[np.int8] = np.zeros((len(contents), len(classes)), dtype=np.int8)
    for number, content in enumerate(contents):
        for name, value in content.items():
            values[number, column[name]] = value
    return Parsed(images, np.array(lines, dtype=np.int64), classes, values[np.concatenate(codes)])


def _check_known(
    records: Records, values: dict[str, int], known: tuple[str, ...] | None, line: int
) -> None:
    """Raise an error if a cell names a class that is not among the known ones."""
    if known is None:
        return
    for name in values:
        if name not in known:
            raise records.error(
                line, f"unknown class {name!r}{hint_or_list(name, known, 'classes')}"
            )


def check_images(records: Records, images: Sequence[str], lines: Sequence[int]) -> None:
    """Raise an error if there is no image, or if a name is empty or occurs twice."""
    if not images:
        raise LabelFileError(f"{records.path} has a header but no rows; add one row per image")
    distinct = set(images)
    if "" in distinct:
        raise records.error(lines[images.index("")], "no image name; add it or remove the line")
    if len(distinct) < len(images):
        first: dict[str, int] = {}
        for image, line in zip(images, lines, strict=True):
            if first.setdefault(image, line) != line:
                raise records.error(
                    line, f"image {image!r} is already on line {first[image]}; keep one of the two"
                )


class _Cells(dict[str, int]):
    """The value of each cell text; a text is interpreted once and then remembered."""

    def __missing__(self, cell: str) -> int:
        value = _SPELLINGS.get(cell.strip())
        if value is None:
            raise ValueError(cell)
        self[cell] = value
        return value


def _bad_cell(
    records: Records,
    rows: list[list[str]],
    lines: list[int],
    names: tuple[str, ...],
    cells: _Cells,
) -> LabelFileError:
    """The error for the first cell in a block that is not a label."""
    for row, line in zip(rows, lines, strict=True):
        for name, cell in zip(names, row, strict=True):
            try:
                cells[cell]
            except ValueError:
                return records.error(
                    line,
                    f"{_excerpt(cell)} in column {name!r} is not a label; write 1 (present), "
                    "0 (absent or not looked at) or -1 (seen to be absent)",
                )
    raise AssertionError("called without a bad cell")


def _spoken(delimiter: str) -> str:
    return {",": "a comma", "\t": "a tab", ";": "a semicolon"}[delimiter]


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")

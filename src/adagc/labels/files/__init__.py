r"""Read and write label files.

There are three formats, all of them UTF-8 text with a header and below it one line per image:

* "single", one label per image: `image,label`; the label may be empty for an unlabelled image;
* "wide", any number of labels: `image` and one column per class with 1, 0 (or nothing) or -1; the
  header may also begin with `IMAGE\LABEL`, as in the tables of UC Merced and AID;
* "list", any number of labels: `image,labels` with `;` between the names and `!` before the name of
  a class that was seen to be absent.

Cells are separated by commas, tabs or semicolons, whichever the header uses; spaces around a cell
are removed. Comment lines `# key: value` above the header say where the labels come from. Two keys
have a fixed meaning: `classes` (a comma-separated list of all classes in their order, also those
that no row names) and `kind` (`single` or `multi`, if it differs from that of the format).
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import replacing
from adagc.errors import LabelFileError
from adagc.labels.files.rows import (
    ABSENT,
    BETWEEN,
    Records,
    check_images,
    parse_list,
    parse_single,
    parse_wide,
)
from adagc.labels.files.source import open_text
from adagc.labels.table import Kind, LabelTable, check_names

Format = Literal["single", "wide", "list"]

_HEADER = re.compile(r'\s*"?(image|image\\label)"?\s*([,\t;])', re.IGNORECASE)
_KIND: dict[Format, Kind] = {"single": "single", "wide": "multi", "list": "multi"}
_PARSERS = {"single": parse_single, "wide": parse_wide, "list": parse_list}
_BLOCK = 50_000  # rows that are converted to Python lists at once when writing


def read_labels(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    kind: Kind | None = None,
) -> LabelTable:
    """Read a label file in any of the formats of this module.

    Example:
        >>> from pathlib import Path
        >>> from adagc import read_labels
        >>> with Path("labels.csv").open("w") as file:
        ...     print("image,label", "a.tif,water", "b.tif,forest", sep=chr(10), file=file)
        >>> table = read_labels("labels.csv")
        >>> table, table.classes
        (LabelTable(2 images, 2 classes, one label each), ('forest', 'water'))

    Args:
        path: The file.
        classes: All classes, in the order of the columns of the result. Another name in the file is
            an error; a class that the file does not mention is 0 for every image. By default the
            classes of the comment line `# classes:`, else the columns of the file, else the names
            used in it in sorted order.
        kind: "single" if no image may have more than one label, otherwise "multi"; by default what
            the file or its format says.

    Raises:
        LabelFileError: The file cannot be used; the message names file, line and remedy.
    """
    path = Path(path)
    lines = open_text(path)
    block = _read_comments(path, lines)
    if block.header is None:
        raise LabelFileError(f"{path} is empty; add a header ('image,label') and one row per image")
    columns, delimiter = _split_header(path, block.line, block.header)
    layout = _layout(columns)
    known = block.classes if classes is None else tuple(classes)
    if classes is not None:
        check_names(tuple(classes), "class")
    records = Records(path, lines, block.line + 1, delimiter, columns)
    parsed = _PARSERS[layout](records, known)
    return LabelTable(
        images=tuple(parsed.images),
        classes=parsed.classes,
        values=parsed.values,
        kind=kind or block.kind or _KIND[layout],
        meta=block.meta,
        source=path,
        lines=parsed.lines,
    )


def read_column(path: str | os.PathLike[str], name: str) -> tuple[list[str], list[str], list[int]]:
    """Read a file with the columns `image` and `name`, such as `image,split`; see `read_pairs`.

    An image that is there twice is an error, too.
    """
    images, cells, numbers = read_pairs(path, ("image", name))
    records = Records(Path(path), iter(()), 0, ",", ("image", name))
    check_images(records, images, numbers)
    return images, cells, numbers


def read_pairs(
    path: str | os.PathLike[str], names: tuple[str, str]
) -> tuple[list[str], list[str], list[int]]:
    """Read a file with two columns of these names.

    It may look like a label file: comment lines at the top, commas, tabs or semicolons.

    Returns:
        Of each row the first cell, the second cell, and its line in the file.

    Raises:
        LabelFileError: The file cannot be used; the message names file, line and remedy.
    """
    path = Path(path)
    lines = open_text(path)
    header, number = next(
        ((line, number) for number, line in enumerate(lines, start=1) if _says_something(line)),
        ("", 1),
    )
    start = re.match(rf'\s*"?{names[0]}"?\s*([,\t;])', header, re.IGNORECASE)
    columns = [cell.strip().strip('"').lower() for cell in header.split(start[1] if start else ",")]
    if start is None or columns != [*names]:
        shown = header.strip()
        raise LabelFileError(
            f"{path}, line {number}: the first line must be the header '{','.join(names)}', not "
            f"{shown if len(shown) <= 40 else shown[:37] + '...'!r}; add or rename it"
        )
    records = Records(path, lines, number + 1, start[1], names)
    first, second, numbers = [], [], []
    for rows, at in records.blocks():
        first += [row[0].strip() for row in rows]
        second += [row[1].strip() for row in rows]
        numbers += at
    return first, second, numbers


def _says_something(line: str) -> bool:
    """Whether it is neither empty nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def write_labels(
    table: LabelTable,
    path: str | os.PathLike[str] | TextIO,
    *,
    format: Format | None = None,  # noqa: A002
) -> None:
    """Write a table to a file from which `read_labels` reads the same table; it writes atomically.

    Example:
        >>> from pathlib import Path
        >>> from adagc import LabelTable, write_labels
        >>> table = LabelTable(("a", "b"), ("forest", "water"), [[1, 1], [0, -1]])
        >>> write_labels(table, "labels.csv")
        >>> print(Path("labels.csv").read_text().rstrip())
        image,forest,water
        a,1,1
        b,0,-1

    Args:
        table: The labels to write.
        path: The file, an existing one is replaced; or an open text file to write to.
        format: "single", "wide" or "list"; the module docstring describes them. By default
            "single" for a table of single labels without absent classes (-1), which that format
            cannot express, otherwise "wide".

    Raises:
        LabelFileError: The format cannot express the table, or the file cannot be written.
    """
    path = Path(path) if isinstance(path, str | os.PathLike) else path
    if format is None:
        simple = table.kind == "single" and not (table.values == -1).any()
        layout: Format = "single" if simple else "wide"
    elif format in _KIND:
        layout = format
    else:
        raise ValueError(f"format must be one of {', '.join(_KIND)}, not {format!r}")
    _check_writable(table, path, layout)
    with _replacing(path) as file:
        for key, value in table.meta.items():
            file.write(f"# {key}: {value}".rstrip() + "\n")
        if table.kind != _KIND[layout]:
            file.write(f"# kind: {table.kind}\n")
        if layout != "wide":
            file.write(f"# classes: {_csv_line(table.classes)}\n")
        writer = csv.writer(file, lineterminator="\n")
        if layout == "wide":
            # a single class called "label" or "labels" would look like another format
            ambiguous = len(table.classes) == 1 and _layout(("image", *table.classes)) != "wide"
            writer.writerow(("IMAGE\\LABEL" if ambiguous else "image", *table.classes))
        else:
            writer.writerow(("image", "label" if layout == "single" else "labels"))
        for start in range(0, len(table), _BLOCK):
            images = table.images[start : start + _BLOCK]
            values = table.values[start : start + _BLOCK]
            if layout == "wide":
                rows = zip(images, *values.T.tolist(), strict=True)
            else:
                rows = zip(images, _joined(values, table.classes), strict=True)
            writer.writerows(rows)


@dataclass(frozen=True)
class _Comments:
    """The comment lines above the header, the header (None if there is none) and its line."""

    meta: dict[str, str]
    classes: tuple[str, ...] | None
    kind: Kind | None
    header: str | None
    line: int


def _read_comments(path: Path, lines: Iterator[str]) -> _Comments:
    meta: dict[str, str] = {}
    classes: tuple[str, ...] | None = None
    kind: Kind | None = None
    number = 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if not text.startswith("#"):
            return _Comments(meta, classes, kind, line, number)
        key, colon, value = (part.strip() for part in text[1:].partition(":"))
        if not key or not colon:
            continue  # a comment without a key
        if key.lower() == "classes":
            try:
                classes = tuple(name.strip() for name in next(csv.reader([value], strict=True), []))
                check_names(classes, "class")
            except csv.Error:
                raise LabelFileError(
                    f"{path}, line {number}: a quotation mark is not closed; close it"
                ) from None
            except LabelFileError as error:
                raise LabelFileError(f"{path}, line {number}: {error}") from None
        elif key.lower() == "kind":
            if value not in ("single", "multi"):
                raise LabelFileError(
                    f"{path}, line {number}: kind {value!r} is unknown; write single or multi"
                )
            kind = "single" if value == "single" else "multi"
        else:
            meta[key] = value
    return _Comments(meta, classes, kind, None, number)


def _split_header(path: Path, number: int, line: str) -> tuple[tuple[str, ...], str]:
    """The names of the columns, and the character that separates the cells."""
    header = _HEADER.match(line)
    if header is None:
        start = line.strip()
        raise LabelFileError(
            f"{path}, line {number}: the first line must be a header, 'image,label', "
            "'image,labels' or 'image' and one column per class, "
            f"not {start if len(start) <= 40 else start[:37] + '...'!r}; add or rename it"
        )
    delimiter = header[2]
    try:
        columns = tuple(
            cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))
        )
        check_names(columns[1:], "class")
    except csv.Error:
        raise LabelFileError(
            f"{path}, line {number}: a quotation mark in the header is not closed; close it"
        ) from None
    except LabelFileError as error:
        raise LabelFileError(f"{path}, line {number}: {error}") from None
    # a first column called IMAGE\LABEL is kept, as it means that all other columns are classes
    return (columns[0].lower(), *columns[1:]), delimiter


def _layout(columns: tuple[str, ...]) -> Format:
    """The format that a header belongs to."""
    match tuple(name.lower() for name in columns):
        case ("image", "label"):
            return "single"
        case ("image", "labels"):
            return "list"
    return "wide"


def _check_writable(table: LabelTable, path: Path | TextIO, layout: Format) -> None:
    """Raise LabelFileError if this format cannot express the table."""
    if not len(table):
        raise LabelFileError(f"{path}: there is no image to write; label at least one")
    if layout == "single":
        if (table.values == -1).any():
            raise LabelFileError(
                f"{path}: the format 'single' cannot say that a class is absent; use 'wide'"
            )
        several = np.flatnonzero((table.values == 1).sum(axis=1) > 1)
        if several.size:
            raise LabelFileError(
                f"{path}: image {table.images[several[0]]!r} has several labels, the format "
                "'single' holds one; use 'wide' or 'list'"
            )
    if layout == "list":
        for name in table.classes:
            if BETWEEN in name or name.startswith(ABSENT):
                raise LabelFileError(
                    f"{path}: class {name!r} cannot stand in a list of labels ({BETWEEN!r} and a "
                    f"leading {ABSENT!r} have a meaning there); use 'wide'"
                )


def _joined(values: NDArray[np.int8], classes: tuple[str, ...]) -> list[str]:
    """The second cell of each row: names with ; between them, and ! before absent classes."""
    names = np.array(classes, dtype=object)
    parts = np.where(values == 1, names, np.where(values == -1, ABSENT + names, ""))
    return [BETWEEN.join(filter(None, row)) for row in parts.tolist()]


def _csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


@contextmanager
def _replacing(path: Path | TextIO) -> Iterator[TextIO]:
    """A file under a temporary name that takes its place when all went well."""
    if not isinstance(path, Path):
        yield path
        return
    if path.is_dir():
        raise LabelFileError(f"{path} is a folder; give the name of a file in it")
    try:
        with replacing(path) as (file,):
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            yield text
            text.detach()  # writes what is left, but leaves the file open
    except OSError as error:
        raise LabelFileError(
            f"{path} cannot be written ({error.strerror}); check that its folder exists and is "
            "writable"
        ) from error

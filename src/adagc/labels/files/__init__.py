r"""Read and write label files.

All of them are UTF-8 text with one image per line below a header:

* single positive: `image,label`; an empty label is an image nobody could name;
* multi-label, wide: `image` and one column per class with 1, 0 (or nothing) and -1; the header may
  also begin with `IMAGE\LABEL`, as in the tables of UC Merced and AID;
* multi-label, list: `image,labels` with `;` between the names and `!` before the name of a class
  that was seen to be absent.

Cells are separated by commas, tabs or semicolons, as the header shows, and trimmed. Comment lines
`# key: value` above the header say where the labels come from. Two keys belong to the format:
`classes` (a comma-separated list: the order of the classes, and those that no row names) and `kind`
(`single` or `multi`, where the format alone says otherwise).
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
from adagc.labels.files.rows import ABSENT, BETWEEN, Records, parse_list, parse_single, parse_wide
from adagc.labels.files.source import open_text
from adagc.labels.table import Kind, LabelTable, check_names

Format = Literal["single", "wide", "list"]

_HEADER = re.compile(r'\s*"?(image|image\\label)"?\s*([,\t;])', re.IGNORECASE)
_KIND: dict[Format, Kind] = {"single": "single", "wide": "multi", "list": "multi"}
_PARSERS = {"single": parse_single, "wide": parse_wide, "list": parse_list}
_BLOCK = 50_000  # rows turned into Python lists at once when writing


def read_labels(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    kind: Kind | None = None,
) -> LabelTable:
    """Read a label file in any of the formats of this module.

    Args:
        path: The file.
        classes: The classes there are, in the order of the columns to give; another name in the
            file is an error, and a class that the file does not mention is 0 everywhere. Without
            it: what the file says, else its columns, else the names it uses in sorted order.
        kind: What the labels are meant to be; without it what the file says.

    Raises:
        LabelFileError: one line with file, line and remedy.
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


def write_labels(
    table: LabelTable,
    path: str | os.PathLike[str] | TextIO,
    *,
    format: Format | None = None,  # noqa: A002
) -> None:
    """Write a table such that `read_labels` gives it back; the file appears whole or not at all.

    Args:
        table: What to write.
        path: The file; one that exists is replaced. Or where to write the text to instead.
        format: "single", "wide" or "list" (see the module). By default "single" for a
            single-positive table, unless it holds absences (-1), which only the others can say,
            and "wide" for a multi-label one.

    Raises:
        LabelFileError: the format cannot say what the table holds, or the file cannot be written.
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
            # a lone class of this name would read as the header of another format
            mistakable = len(table.classes) == 1 and _layout(("image", *table.classes)) != "wide"
            writer.writerow(("IMAGE\\LABEL" if mistakable else "image", *table.classes))
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
    """What stands above the header, the header, and its line."""

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
            continue  # a remark
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
    """The names of the columns, and what separates the cells."""
    found = _HEADER.match(line)
    if found is None:
        start = line.strip()
        raise LabelFileError(
            f"{path}, line {number}: the first line must be a header, 'image,label', "
            "'image,labels' or 'image' and one column per class, "
            f"not {start if len(start) <= 40 else start[:37] + '...'!r}; add or rename it"
        )
    delimiter = found[2]
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
    # an image column named like the tables of UC Merced means: all others are classes
    return (columns[0].lower(), *columns[1:]), delimiter


def _layout(columns: tuple[str, ...]) -> Format:
    match tuple(name.lower() for name in columns):
        case ("image", "label"):
            return "single"
        case ("image", "labels"):
            return "list"
    return "wide"


def _check_writable(table: LabelTable, path: Path | TextIO, layout: Format) -> None:
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
    """The cell of each row: names with ; between them, ! before the absent ones."""
    present = np.array(classes, dtype=object)
    said = np.where(values == 1, present, np.where(values == -1, ABSENT + present, ""))
    return [BETWEEN.join(filter(None, row)) for row in said.tolist()]


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
        with (
            replacing(path) as (temporary,),
            temporary.open("x", encoding="utf-8", newline="") as file,
        ):
            yield file
    except OSError as error:
        raise LabelFileError(
            f"{path} cannot be written ({error.strerror}); check that its folder exists and is "
            "writable"
        ) from error

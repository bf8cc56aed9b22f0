"""The names of classes, as a user gives them: in a list, in a file, or in a file of labels."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from adagc.errors import DataError, LabelFileError, UsageError
from adagc.labels.files import read_labels
from adagc.labels.table import check_names

_LABEL_FILE = re.compile(r'\s*"?(image|image\\label)"?\s*[,\t;]', re.IGNORECASE)
_LISTS = (".txt", ".csv", ".tsv")


def class_names(told: str) -> tuple[str, ...]:
    """The class names in a comma-separated list, or in the file of names or labels at a path."""
    path = Path(told)
    if path.is_file():
        names = _names_of(path)
    elif told and path.is_dir():
        raise UsageError(f"{path} is a folder: give a file of names, or the names")
    elif path.suffix.lower() in _LISTS:
        raise UsageError(f"{path}: there is no such file: give a file of names, or the names")
    else:
        cells = next(csv.reader([told], skipinitialspace=True), [])
        names = tuple(name.strip() for name in cells)
    if not names:
        place = f"{told}: there is no class in it" if told.strip() else "no class is given"
        raise UsageError(f"{place}: name at least one")
    try:
        check_names(names, "class")
    except LabelFileError as error:
        raise UsageError(f"{told}: {error}") from None
    return names


def _names_of(path: Path) -> tuple[str, ...]:
    """The class names in a file: one name per line, or a label file."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    names = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if names and _LABEL_FILE.match(names[0]):
        return read_labels(path).classes
    return tuple(names)

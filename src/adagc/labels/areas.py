"""Files of areas: how much of each image each class covers.

They are CSV files with the columns `image` and one per class, in any unit: shares, or pixels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_text
from adagc.errors import LabelFileError
from adagc.labels.table import LabelTable


def read_areas(path: Path, clean: LabelTable) -> NDArray[np.float64]:
    """The area of each class on each image, (N, C), in the order of the clean labels.

    Args:
        path: The file, with a row for each image of `clean` and no other.
        clean: The clean labels of the images.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.reader(handle))
    except (OSError, UnicodeDecodeError) as error:
        raise LabelFileError(f"{path} cannot be read ({error}): save it as UTF-8 CSV") from None
    if not rows or set(rows[0][1:]) != set(clean.classes):
        raise LabelFileError(
            f"{path}, line 1: the header must be image and the classes of the label file"
            f" ({', '.join(clean.classes[:3])}, ...)"
        )
    place = {name: i for i, name in enumerate(clean.images)}
    columns = [rows[0].index(name) for name in clean.classes]
    areas = np.zeros((len(clean), len(clean.classes)))
    missing = set(clean.images)
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if row[0] not in place:
            raise LabelFileError(
                f"{path}, line {number}: image {row[0]!r} is not in the label file"
            )
        try:
            values = np.array([float(row[column]) for column in columns])
        except (ValueError, IndexError):
            values = np.array([np.nan])
        if not (values >= 0).all():  # also refuses NaN
            raise LabelFileError(
                f"{path}, line {number}: expected {len(columns)} numbers of at least 0 after the"
                " image; correct the line"
            )
        areas[place[row[0]]] = values
        missing.discard(row[0])
    if missing:
        raise LabelFileError(
            f"{path} has no areas for {len(missing)} images, {min(missing)!r} first"
        )
    return areas


def write_areas(
    path: Path, images: Sequence[str], classes: Sequence[str], areas: NDArray[np.float32]
) -> None:
    """Write a file from which `read_areas` reads the same numbers.

    Args:
        path: The file; an existing one is replaced.
        images: Names of the images.
        classes: Names of the classes.
        areas: (N, C) area of each class on each image.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", *classes))
    for name, row in zip(images, areas.tolist(), strict=True):
        writer.writerow((name, *(f"{value:.9g}" for value in row)))
    write_text(path, text.getvalue())

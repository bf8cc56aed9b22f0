"""Bring the rows of a label table and the names of images together."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, LabelFileError
from adagc.suggest import closest

if TYPE_CHECKING:
    from adagc.labels.table import LabelTable

Unknown = Literal["error", "ignore"]

# Only these endings are taken for an extension: the ".3" of "patch.3" is part of the name.
IMAGE_SUFFIXES = frozenset(
    {"bmp", "gif", "h5", "img", "jp2", "jpeg", "jpg", "nc", "npy", "npz", "png", "ppm"}
    | {"safetensors", "tif", "tiff", "vrt", "webp"}
)


def match(
    table: LabelTable,
    names: Sequence[str],
    *,
    what: str = "images",
    unknown: Unknown = "error",
) -> NDArray[np.int8]:
    r"""The labels of the images `names`, (len(names), C); zeros for an image without a row.

    A row names an image by its relative path, or without extension, or without (some of) the
    folders, with / or \. An exact path wins over anything shorter. Folders that contradict each
    other never match: "forest/001.jpg" is not "water/001.jpg".

    Args:
        table: The labels.
        names: Unique relative paths of the images.
        what: What the names are, for messages.
        unknown: What to do with a row whose image is not among `names`.

    Raises:
        LabelFileError: a row fits no image (unless ignored) or several, or two rows fit one.
    """
    rows = locate(table, names, what=what, unknown=unknown)
    aligned: NDArray[np.int8] = np.zeros((len(names), len(table.classes)), dtype=np.int8)
    aligned[rows >= 0] = table.values[rows[rows >= 0]]
    return aligned


def locate(
    table: LabelTable,
    names: Sequence[str],
    *,
    what: str = "images",
    unknown: Unknown = "error",
) -> NDArray[np.int64]:
    """The row of `table` for each of the images `names`, -1 for none; rules as for `match`."""
    if unknown not in ("error", "ignore"):
        raise ValueError(f"unknown must be 'error' or 'ignore', not {unknown!r}")
    found = _image_of_each_row(table, names)
    lost = np.flatnonzero(found < 0)
    if lost.size and unknown == "error":
        raise LabelFileError(_not_found(table, lost, names, what))

    rows = np.flatnonzero(found >= 0)
    located = np.full(len(names), -1, dtype=np.int64)
    located[found[rows]] = rows
    # where several rows point to one image the last one stands, and the others see it
    beaten = rows[located[found[rows]] != rows]
    if beaten.size:
        first = int(beaten[0])
        second = int(located[found[first]])
        raise LabelFileError(
            f"{table.where(first)}: {table.images[first]!r} and {table.images[second]!r} "
            f"({_short(table, second)}) are both the image {names[found[first]]!r}; remove one"
        )
    return located


def _image_of_each_row(table: LabelTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Position in `names` for each row of the table, -1 for none."""
    keys = [_key(name) for name in names]
    exact = {key: position for position, key in enumerate(keys)}
    if len(exact) != len(keys):
        twice = next(i for i, key in enumerate(keys) if exact[key] != i)
        raise DataError(
            f"images {names[twice]!r} and {names[exact[keys[twice]]]!r} have the same name; "
            "rename one"
        )
    wanted = [_key(image) for image in table.images]
    found = np.fromiter((exact.get(key, -1) for key in wanted), np.int64, count=len(wanted))
    open_rows = np.flatnonzero(found < 0).tolist()
    if not open_rows:  # the usual case for tables we wrote ourselves: no second index needed
        return found

    bare = [_without_suffix(key) for key in keys]
    first: dict[str, int] = {}  # stem -> position
    others: defaultdict[str, list[int]] = defaultdict(list)  # further images of that stem, rare
    for position, path in enumerate(bare):
        stem = path.rpartition("/")[2]
        if first.setdefault(stem, position) != position:
            others[stem].append(position)
    for row in open_rows:
        path = _without_suffix(wanted[row])
        stem = path.rpartition("/")[2]
        if stem not in first:
            continue
        candidates = [first[stem], *others.get(stem, ())]
        fits = [i for i in candidates if _same_place(path, bare[i])]
        if len(fits) > 1:  # the same path is better, then the same file name
            fits = [i for i in fits if bare[i] == path] or fits
            file_name = wanted[row].rpartition("/")[2]
            fits = [i for i in fits if keys[i].rpartition("/")[2] == file_name] or fits
        if len(fits) > 1:
            raise LabelFileError(
                f"{table.where(row)}: image {table.images[row]!r} may be {names[fits[0]]!r} or "
                f"{names[fits[1]]!r}; write it with its folder and extension"
            )
        if fits:
            found[row] = fits[0]
    return found


def _key(name: str) -> str:
    r"""One spelling for / and \, a leading ./, and for accents (macOS takes them apart)."""
    key = name.replace("\\", "/")
    while key.startswith("./"):
        key = key[2:]
    return key if key.isascii() else unicodedata.normalize("NFC", key)


def _without_suffix(key: str) -> str:
    stem, dot, suffix = key.rpartition(".")
    return stem if dot and suffix.lower() in IMAGE_SUFFIXES else key


def _same_place(one: str, other: str) -> bool:
    """Whether one path is the other, or its end."""
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def _not_found(table: LabelTable, lost: NDArray[np.int64], names: Sequence[str], what: str) -> str:
    first = int(lost[0])
    image = table.images[first]
    message = f"{table.where(first)}: {image!r} is not among the {len(names)} {what}"
    if lost.size > 1:
        examples = ", ".join(repr(table.images[row]) for row in lost[:3])
        message += (
            f", like {lost.size} of {len(table)} rows ({examples}{', ...' * (lost.size > 3)})"
        )
    # compared without folder and extension, as these may be left out
    stems = {_without_suffix(_key(name)).rpartition("/")[2]: name for name in names}
    near = closest(_without_suffix(_key(image)).rpartition("/")[2], stems)
    if near is not None:
        return f"{message}; did you mean {stems[near]!r}?"
    return f"{message}; correct or remove {'them' if lost.size > 1 else 'it'}"


def _short(table: LabelTable, row: int) -> str:
    return f"row {row + 1}" if table.lines is None else f"line {table.lines[row]}"

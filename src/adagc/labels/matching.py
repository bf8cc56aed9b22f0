"""Match the rows of a label table to images by name."""

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

# Only these are taken for file extensions: the ".3" of "patch.3" is part of the name.
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
    left_out: Sequence[str] = (),
) -> NDArray[np.int8]:
    r"""The labels of the images `names`, (len(names), C); zeros for an image without a row.

    A row may name an image by its relative path, with or without extension, and without some or
    all of the folders; folders may be separated by / or \. An exact path is preferred to a shorter
    one. Paths with different folders never match: "forest/001.jpg" is not "water/001.jpg".

    Args:
        table: The labels.
        names: Relative paths of the images, all different.
        what: What error messages call `names`.
        unknown: What to do with a row whose image is not among `names`: "error" raises, "ignore"
            leaves it out.
        left_out: Names of images that exist but are not among `names`: their rows are ignored.

    Raises:
        LabelFileError: A row matches no image (unless ignored) or several images, or two rows
            match the same image.
    """
    rows = locate(table, names, what=what, unknown=unknown, left_out=left_out)
    aligned: NDArray[np.int8] = np.zeros((len(names), len(table.classes)), dtype=np.int8)
    aligned[rows >= 0] = table.values[rows[rows >= 0]]
    return aligned


def locate(
    table: LabelTable,
    names: Sequence[str],
    *,
    what: str = "images",
    unknown: Unknown = "error",
    left_out: Sequence[str] = (),
) -> NDArray[np.int64]:
    """The row of `table` for each image in `names`, -1 for none; matched as `match` describes."""
    if unknown not in ("error", "ignore"):
        raise ValueError(f"unknown must be 'error' or 'ignore', not {unknown!r}")
    present, names = len(names), [*names, *left_out]
    positions = _image_of_each_row(table, names)
    unmatched = np.flatnonzero(positions < 0)
    if unmatched.size and unknown == "error":
        raise LabelFileError(_not_found(table, unmatched, names[:present], what))

    rows = np.flatnonzero(positions >= 0)
    located = np.full(len(names), -1, dtype=np.int64)
    located[positions[rows]] = rows
    # If several rows match one image, only the last is stored; the others find another row there.
    overwritten = rows[located[positions[rows]] != rows]
    if overwritten.size:
        first = int(overwritten[0])
        second = int(located[positions[first]])
        one, other = _apart(table.images[first], table.images[second])
        raise LabelFileError(
            f"{table.where(first)}: {one} and {other} ({_short(table, second)}) are both the image "
            f"{names[positions[first]]!r}; remove one"
        )
    return located[:present]


def _image_of_each_row(table: LabelTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Position in `names` for each row of the table, -1 for none."""
    keys = [_key(name) for name in names]
    exact = {key: position for position, key in enumerate(keys)}
    if len(exact) != len(keys):
        twice = next(i for i, key in enumerate(keys) if exact[key] != i)
        one, other = _apart(names[twice], names[exact[keys[twice]]])
        raise DataError(f"the images {one} and {other} have the same name; rename one")
    wanted = [_key(image) for image in table.images]
    positions = np.fromiter((exact.get(key, -1) for key in wanted), np.int64, count=len(wanted))
    open_rows = np.flatnonzero(positions < 0).tolist()
    if not open_rows:  # usual for tables that adagc wrote: the index by stem is not needed
        return positions

    bare = [_without_suffix(key) for key in keys]
    first: dict[str, int] = {}  # stem (name without folder and extension) -> position
    others: defaultdict[str, list[int]] = defaultdict(list)  # further images with the same stem
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
        if len(fits) > 1:  # prefer the same path, then the same file name with extension
            fits = [i for i in fits if bare[i] == path] or fits
            file_name = wanted[row].rpartition("/")[2]
            fits = [i for i in fits if keys[i].rpartition("/")[2] == file_name] or fits
        if len(fits) > 1:
            raise LabelFileError(
                f"{table.where(row)}: image {table.images[row]!r} may be {names[fits[0]]!r} or "
                f"{names[fits[1]]!r}; write it with its folder and extension"
            )
        if fits:
            positions[row] = fits[0]
    return positions


def _key(name: str) -> str:
    r"""A path in a uniform spelling: / instead of \, no leading ./, accents composed (NFC).

    macOS stores accents as separate characters.
    """
    key = name.replace("\\", "/")
    while key.startswith("./"):
        key = key[2:]
    return key if key.isascii() else unicodedata.normalize("NFC", key)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Both names in quotation marks; accents are spelt out if the names would look the same."""
    alike = unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)
    return (ascii(one), ascii(other)) if alike else (repr(one), repr(other))


def _without_suffix(key: str) -> str:
    stem, dot, suffix = key.rpartition(".")
    return stem if dot and suffix.lower() in IMAGE_SUFFIXES else key


def _same_place(a: str, b: str) -> bool:
    """Whether two paths are equal, or one of them is the other without some first folders."""
    return a == b or a.endswith("/" + b) or b.endswith("/" + a)


def _not_found(
    table: LabelTable, unmatched: NDArray[np.int64], names: Sequence[str], what: str
) -> str:
    """The error message for rows that match no image, with a similar name if there is one."""
    first = int(unmatched[0])
    image = table.images[first]
    message = f"{table.where(first)}: {image!r} is not among the {len(names)} {what}"
    count = unmatched.size
    if count > 1:
        examples = ", ".join(repr(table.images[row]) for row in unmatched[:3])
        message += f", like {count} of {len(table)} rows ({examples}{', ...' * (count > 3)})"
    # compared without folder and extension, as label files may leave these out
    stems = {_without_suffix(_key(name)).rpartition("/")[2]: name for name in names}
    near = closest(_without_suffix(_key(image)).rpartition("/")[2], stems)
    if near is not None:
        return f"{message}; did you mean {stems[near]!r}?"
    return f"{message}; correct or remove {'them' if count > 1 else 'it'}"


def _short(table: LabelTable, row: int) -> str:
    return f"row {row + 1}" if table.lines is None else f"line {table.lines[row]}"

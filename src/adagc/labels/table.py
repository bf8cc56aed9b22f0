"""The label table: which classes were seen on which images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import LabelFileError
from adagc.labels.matching import Unknown, match
from adagc.suggest import hint_or_list

Kind = Literal["single", "multi"]

# Keys of comment lines that have a fixed meaning in label files.
RESERVED = frozenset({"classes", "kind"})


@dataclass(frozen=True, eq=False, repr=False)
class LabelTable:
    """Labels of N images for C classes; they are checked when the table is made, and read-only.

    +1 means that the class is present. In a table of observed labels 0 means that it is not known
    whether the class is present, and -1 that it was seen to be absent; in a table of complete
    labels 0 means absent. A row of zeros is an image without a label.

    Example:
        >>> from adagc import LabelTable
        >>> table = LabelTable(("a.tif", "b.tif"), ("forest", "water"), [[1, 0], [0, 1]], "single")
        >>> table
        LabelTable(2 images, 2 classes, one label each)
        >>> table.counts
        array([1, 1])
        >>> table.rows_for(["b", "a"])  # in the order of the images, whatever their suffix
        array([[0, 1],
               [1, 0]], dtype=int8)

    Attributes:
        images: Name of each image in the label file, with or without folder and extension.
        classes: Names of the classes, in the order of the columns.
        values: (N, C), -1, 0 or +1.
        kind: "single" if no image has more than one +1, "multi" for any number.
        meta: Where the labels come from (scheme, seed, hash of the source).
        source: The file from which the labels were read; None if they were not.
        lines: (N,) line of each row in that file, for error messages.
    """

    images: tuple[str, ...]
    classes: tuple[str, ...]
    values: NDArray[np.int8]
    kind: Kind = "multi"
    meta: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None
    lines: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        given = np.asarray(self.values)
        shape = (len(self.images), len(self.classes))
        if given.shape != shape:
            raise ValueError(f"values must have the shape {shape}, not {given.shape}")
        if not ((given == 0) | (given == 1) | (given == -1)).all():
            raise ValueError("values may hold only -1, 0 and +1")
        values = given.astype(np.int8)  # a copy, so that the caller's array stays writable
        if self.lines is not None and self.lines.shape != shape[:1]:
            raise ValueError("lines must have one entry for each image")
        if self.kind not in ("single", "multi"):
            raise ValueError(f"kind must be 'single' or 'multi', not {self.kind!r}")
        values.flags.writeable = False
        object.__setattr__(self, "images", tuple(self.images))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "meta", dict(self.meta))
        check_names(self.images, "image")
        check_names(self.classes, "class")
        for key, value in self.meta.items():
            check_meta(key, value)
        if self.kind == "single":
            crowded = np.flatnonzero((values == 1).sum(axis=1) > 1)
            if crowded.size:
                row = int(crowded[0])
                names = [self.classes[c] for c in np.flatnonzero(values[row] == 1)]
                raise LabelFileError(
                    f"{self.where(row)}: image {self.images[row]!r} has {len(names)} positive "
                    f"labels ({', '.join(names[:4])}) in a single-positive table; keep one of "
                    "them, or use the table as multi-label"
                )

    def __repr__(self) -> str:
        many = "one label each" if self.kind == "single" else f"{int(self.counts.sum())} labels"
        return f"LabelTable({len(self)} images, {len(self.classes)} classes, {many})"

    def __len__(self) -> int:
        return len(self.images)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTable):
            return NotImplemented
        return (
            (self.images, self.classes, self.kind) == (other.images, other.classes, other.kind)
            and self.meta == other.meta
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]  # use `hash`, the digest of the content

    @cached_property
    def hash(self) -> str:
        """SHA-256 of classes, images and values in hex; the order of the rows does not matter."""
        order = sorted(range(len(self)), key=self.images.__getitem__)
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        digest.update(json.dumps([self.images[row] for row in order]).encode())
        digest.update(self.values[order].tobytes())
        return digest.hexdigest()

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Where a class is present, (N, C) booleans."""
        present: NDArray[np.bool_] = self.values == 1
        return present

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of images on which each class is present, (C,)."""
        counts: NDArray[np.int64] = self.positive.sum(axis=0, dtype=np.int64)
        return counts

    @property
    def unlabelled(self) -> int:
        """Number of images without a positive label."""
        return int((~self.positive.any(axis=1)).sum())

    def rows_for(self, names: Sequence[str], *, unknown: Unknown = "error") -> NDArray[np.int8]:
        """(len(names), C) labels in the order of `names`; see `adagc.labels.match`."""
        return match(self, names, unknown=unknown)

    def take(self, rows: NDArray[np.int64]) -> LabelTable:
        """A table with only these rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            images=tuple(self.images[row] for row in rows),
            values=self.values[rows],
            lines=None if self.lines is None else self.lines[rows],
        )

    def select(self, classes: Sequence[str]) -> LabelTable:
        """A table with only these classes, in this order."""
        column = {name: i for i, name in enumerate(self.classes)}
        for name in classes:
            if name not in column:
                raise LabelFileError(
                    f"{self.source or 'label table'}: there is no class {name!r}"
                    + hint_or_list(name, self.classes, "classes")
                )
        columns = [column[name] for name in classes]
        return replace(self, classes=tuple(classes), values=self.values[:, columns])

    def where(self, row: int) -> str:
        """The position of a row for messages: file and line, or the row of a table in memory."""
        if self.lines is None:
            return f"{self.source or 'label table'}, row {row + 1}"
        return f"{self.source or 'label table'}, line {self.lines[row]}"


def check_names(names: Sequence[str], what: str) -> None:
    """Raise LabelFileError for names that are empty, repeated, or cannot be stored in a text file.

    Spaces around a cell are removed when a file is read, so a name cannot begin or end with white
    space.

    Args:
        names: The names of images or of classes.
        what: "image" or "class", for the message.
    """
    bad = next((name for name in names if not name or name != name.strip()), None)
    if bad is not None:
        raise LabelFileError(
            f"{what} name {bad!r} is empty or begins or ends with white space; rename it"
        )
    joined = "\n".join(names)
    # One fast check over all names; the slower search for the bad name only if it fails.
    if joined.count("\n") >= max(len(names), 1) or "\r" in joined or "\0" in joined:
        bad = next(name for name in names if any(sign in name for sign in "\n\r\0"))
        raise LabelFileError(f"{what} name {bad!r} contains a line break or NUL; rename it")
    try:
        joined.encode()
    except UnicodeEncodeError as error:
        bad = joined[: error.start].rpartition("\n")[2] + joined[error.start :].partition("\n")[0]
        raise LabelFileError(f"{what} name {bad!r} cannot be written as UTF-8; rename it") from None
    if len(set(names)) != len(names):
        earlier: set[str] = set()
        bad = next(name for name in names if name in earlier or earlier.add(name))  # type: ignore[func-returns-value]
        raise LabelFileError(f"{what} name {bad!r} is there twice; remove one")


def check_meta(key: str, value: str) -> None:
    """Raise ValueError for an entry that cannot be stored in a comment line `# key: value`."""
    if not key or key != key.strip() or ":" in key or key.lower() in RESERVED:
        raise ValueError(
            f"meta key {key!r} must be a plain word other than {', '.join(sorted(RESERVED))}"
        )
    if value != value.strip() or any(sign in key + value for sign in "\n\r\0"):
        raise ValueError(f"meta value {value!r} of {key!r} must be one line without outer spaces")

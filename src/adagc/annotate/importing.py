"""Labels that were given elsewhere, taken over into a project: recorded as that, and kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adagc.annotate.events import Event, counting
from adagc.annotate.exchange import events_of, read_any
from adagc.annotate.protocol import Rules
from adagc.annotate.store import Store
from adagc.errors import LabelFileError, UsageError
from adagc.labels import LabelTable
from adagc.labels.matching import locate

_LABELS = ("choose", "none", "absent", "import")


@dataclass(frozen=True)
class Imported:
    """What became of the labels of a file.

    Attributes:
        path: The file.
        taken: How many images got their labels from it.
        known: How many have an answer in the project, which stays.
        differing: How many of these have other labels in the file.
        elsewhere: The images that the project does not have.
    """

    path: Path
    taken: int
    known: int
    differing: int
    elsewhere: tuple[str, ...]

    def __str__(self) -> str:
        """The same in words."""
        said = [f"{self.path.name}: labels of {_images(self.taken)} are taken over."]
        if self.known:
            other = f" ({self.differing:,} differ from the file)" if self.differing else ""
            said.append(f"Answers of {_images(self.known)} stay as they were{other}.")
        if self.elsewhere:
            said.append(
                f"Labels of {_images(len(self.elsewhere))} that are not among yours, such as"
                f" {self.elsewhere[0]!r}, are left out."
            )
        return " ".join(said)


@dataclass(frozen=True)
class Import:
    """Labels that a file has for images of a project.

    Attributes:
        path: The file.
        table: The labels, in the order of the file, with the names that the project has.
        elsewhere: The images of the file that the project does not have.
    """

    path: Path
    table: LabelTable
    elsewhere: tuple[str, ...]


def read_import(path: Path, names: Sequence[str], rules: Rules) -> Import:
    """Read the labels of a file for these images; nothing is written.

    Args:
        path: A label file, or a JSON export of Label Studio.
        names: The images of the project.
        rules: Of the project: labels must be such as they allow.

    Raises:
        LabelFileError: The file cannot be used, or none of its images is in the project.
        UsageError: The rules do not allow these labels.
    """
    table = read_any(path, rules.classes)
    labelled = np.flatnonzero((table.values != 0).any(axis=1))
    if not len(labelled):
        raise LabelFileError(f"{path} holds no label: give a file with labels")
    table = table.take(labelled)
    located = locate(table, names, unknown="ignore")
    if not (located >= 0).any():
        locate(table, names)  # says which image is not there, and what it may be called
    place = {row: place for place, row in enumerate(located.tolist()) if row >= 0}
    rows = sorted(place)
    _check(table, rows, rules)
    return Import(
        path,
        LabelTable(tuple(names[place[row]] for row in rows), table.classes, table.values[rows]),
        tuple(image for row, image in enumerate(table.images) if row not in place),
    )


def import_labels(found: Import, store: Store) -> Imported:
    """Take over labels, of images that have no answer in the project.

    All are taken over or none, as events of the kind "import", whose annotator is the file. So the
    same file once more changes nothing.
    """
    events, given = store.events(), found.table
    before = {event.image: event for event in counting(events) if event.kind in _LABELS}
    fresh = np.array([image not in before for image in given.images], dtype=np.bool_)
    known = events_of(given.take(np.flatnonzero(~fresh)))
    store.add(
        events_of(
            given.take(np.flatnonzero(fresh)),
            annotator=found.path.name.encode(errors="replace").decode(),
            number=events[-1].number + 1 if events else 1,
        )
    )
    return Imported(
        found.path,
        taken=int(fresh.sum()),
        known=len(known),
        differing=sum(_said(event) != _said(before[event.image]) for event in known),
        elsewhere=found.elsewhere,
    )


def _check(table: LabelTable, rows: Sequence[int], rules: Rules) -> None:
    """Raise UsageError at the first row that is no answer by the rules."""
    for row in rows:
        values = table.values[row]
        if not rules.several and (values > 0).sum() > 1:
            problem = "has several classes: add --several"
        elif not rules.absent and (values < 0).any():
            problem = "has absent classes (-1): add --absent"
        else:
            continue
        raise UsageError(f"{table.where(row)}: {table.images[row]!r} {problem}, or import others")


def _said(event: Event) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(event.present), frozenset(event.absent)


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"

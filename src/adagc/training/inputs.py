"""The data set of a run, and which of its images were set apart for what."""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.registry import SETTINGS, find
from adagc.errors import AdagcError
from adagc.labels import LabelTable
from adagc.training.config import RunConfig
from adagc.training.runs import Run
from adagc.training.settings import DataSettings

# May be given with any data set: labels that are not needed to open it are read for training, and
# where decoded images are kept is a habit of the user.
_ALWAYS = frozenset({"labels", "cache"})


def open_configured(config: DataSettings, *, labels: LabelTable | None = None) -> Collection:
    """The data set a configuration names, with its observed labels or with these."""
    entry, fields = find(config.data), DataSettings.__dataclass_fields__
    told = {name: value for name in SETTINGS if (value := getattr(config, name)) is not None}
    options = {
        SETTINGS[name]: value
        for name, value in told.items()
        if name in entry.settings or (name not in _ALWAYS and value != fields[name].default)
    }
    if labels is not None and "labels" in entry.options:
        options["labels"] = labels
    return entry.open(**options)


def config_of(run: Run) -> RunConfig:
    """The settings of a finished or unfinished run."""
    fields = RunConfig.__dataclass_fields__
    return RunConfig(**{name: value for name, value in run.config.items() if name in fields})


def split_text(collection: Collection) -> str:
    """The content of split.csv: which image is for what."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "split"))
    for part, rows in collection.splits.items():
        writer.writerows((collection.images.names[row], part) for row in rows)
    return text.getvalue()


def rows_of_split(run: Run, collection: Collection, split: str) -> NDArray[np.int64]:
    """The rows of the images that this run set apart under this name, and no others."""
    text = io.StringIO(run.files.read("split.csv").decode(), newline="")
    lines = list(csv.reader(text))[1:]
    names = [name for name, part in lines if part == split]
    if not names:
        parts = dict.fromkeys(part for _, part in lines)
        raise AdagcError(f"there is no split {split!r}: choose from {', '.join(parts)}")
    place = {name: row for row, name in enumerate(collection.images.names)}
    lost = [name for name in names if name not in place]
    if lost:
        raise AdagcError(
            f"{len(lost)} of {len(names)} {split} images of this run are not there any more,"
            f" {lost[0]} first: bring them back, or give --root if they have moved"
        )
    return np.array([place[name] for name in names], dtype=np.int64)

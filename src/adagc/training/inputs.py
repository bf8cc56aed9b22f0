"""The data set of a run, and which of its images were set apart for what."""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

from adagc.datasets import open_collection
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError
from adagc.training.config import RunConfig
from adagc.training.runs import Run

# The settings that decide which data is opened; all others leave it as it is.
OPENED_BY = frozenset(
    {
        "data", "root", "size", "split_seed", "split", "labels", "truth", "bands", "cache",
        "skip_unreadable", "scenes",
    }
)  # fmt: skip


def open_configured(config: RunConfig) -> Collection:
    """The data set a configuration names."""
    return open_collection(
        config.data,
        config.root,
        size=config.size,
        seed=config.split_seed,
        split=config.split,
        labels=config.labels,
        truth=config.truth,
        bands=config.bands,
        cache=config.cache,
        skip_unreadable=config.skip_unreadable,
        scenes=config.scenes,
    )


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

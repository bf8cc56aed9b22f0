"""The images that labels are completed of, and what the run knows about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, DataError
from adagc.images.base import SceneDataset
from adagc.labels import LabelTable, match, read_labels
from adagc.models import ModelSpec
from adagc.training.inputs import (
    check_same_data,
    check_values,
    config_of,
    open_configured,
    recorded_rows,
)
from adagc.training.network import suited
from adagc.training.observe import Observed, observe
from adagc.training.runs import Run
from adagc.training.scoring import check_input

NEW = "new"  # part of images that are not the run's


@dataclass(frozen=True)
class Subjects:
    """Images to complete, in order, and what is known of them."""

    collection: Collection
    rows: NDArray[np.int64]  # of the images of the collection
    parts: tuple[str, ...]  # train, val, test or new, of each image
    observed: NDArray[np.int8]  # (N, C) +1, 0, -1, in the order of the model's classes
    trained: NDArray[np.bool_]  # (N,) whether the run was trained on it
    table: LabelTable | None = None  # labels of the run
    labels: Observed | None = None  # the same for all images of the collection

    @property
    def images(self) -> SceneDataset:
        """All images of the collection."""
        return self.collection.images

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each image."""
        return tuple(self.images.names[row] for row in self.rows.tolist())

    def truth(self, classes: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
        """(N, C) clean labels and (N,) of which images they are known; None if of none."""
        known = self.collection.has_truth(self.rows)
        if self.collection.truth is None or not known.any():
            return None
        if set(classes) != set(self.collection.classes):
            return None
        order = [self.collection.classes.index(name) for name in classes]
        return self.collection.truth[self.rows][:, order], known

    def places(self) -> tuple[list[bytes | None] | None, str | None]:
        """Where the images are on earth, and in which reference system; None if nobody knows."""
        # Images that have a place say so; most have none.
        find = getattr(self.images, "geometry", None)
        found = None if find is None else find(self.rows)
        if found is None or all(place is None for place in found):
            return None, None
        return list(found), getattr(self.images, "crs", None)


def labels_of_run(run: Run, classes: Sequence[str]) -> LabelTable:
    """The observed labels as the run has kept them; AdagcError if they are damaged."""
    if run.files.place is not None:
        return read_labels(run.path("labels.csv"), classes=classes)
    import tempfile

    # Label files are read from a path, and a run in memory has none.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        path.write_bytes(run.files.read("labels.csv"))
        return read_labels(path, classes=classes)


def open_subjects(
    run: Run,
    spec: ModelSpec,
    parts: Sequence[str],
    *,
    collection: Collection | None = None,
    root: str | None = None,
    truth: str | None = None,
    other_data: bool = False,
) -> Subjects:
    """The images of these parts of a run, with its observed labels.

    Args:
        run: A finished run.
        spec: Its model.
        parts: Names of splits.
        collection: The data set, if it is already open.
        root: Folder of the data, if it has moved since training.
        truth: File with clean labels, instead of that of the run.
        other_data: Do not insist on the images that the run was trained with.
    """
    config, table = config_of(run), labels_of_run(run, spec.classes)
    known = truth or config.truth
    if truth is None and known is not None and not Path(known).exists():
        known = None  # they are not needed to complete labels
    config = replace(config, root=root or config.root, truth=known, labels=None, split=None)
    if collection is None:
        collection = open_configured(config, labels=table)
    collection = replace(collection, splits=recorded_rows(run, collection))
    wanted = [part for part in parts if part in collection.splits]
    if not wanted:
        raise AdagcError(f"{run} has no {' or '.join(parts)} images: choose another --part")
    check_input(suited(collection.images, plain=spec.is_plain, head=spec.head), spec)
    if not other_data:
        check_same_data(run, collection, *wanted)
    observed = observe(
        collection, labels=table, scheme=None, label_seed=config.label_seed, share=config.share
    )
    rows = np.concatenate([collection.splits[part] for part in wanted])
    check_values(collection.images, rows)
    return Subjects(
        collection,
        rows,
        tuple(part for part in wanted for _ in collection.splits[part]),
        observed.values[rows],
        np.isin(rows, observed.train),
        table,
        observed,
    )


def open_new(run: Run, spec: ModelSpec, place: str) -> Subjects:
    """Images that the run does not know, opened as its own were; nothing is observed of them."""
    nothing = LabelTable((), spec.classes, np.zeros((0, len(spec.classes)), dtype=np.int8))
    config = replace(config_of(run), root=place, labels=None, truth=None, split=None)
    collection = open_configured(config, labels=nothing)
    if not len(collection.images):
        raise DataError(f"--images {place} has no images")
    check_input(suited(collection.images, plain=spec.is_plain, head=spec.head), spec)
    rows = np.arange(len(collection.images), dtype=np.int64)
    check_values(collection.images, rows)
    observed = match(nothing, collection.images.names)
    return Subjects(collection, rows, (NEW,) * len(rows), observed, np.zeros(len(rows), np.bool_))

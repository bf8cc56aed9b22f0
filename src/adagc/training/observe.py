"""What was observed: read from a label file, or simulated from clean labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.assemble import labels_of
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UsageError
from adagc.labels import LabelTable, match, simulate_dominant, simulate_random
from adagc.training.settings import require_labels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observed:
    """Observed labels of every image of a collection, and the rows that can be trained on."""

    values: NDArray[np.int8]  # (N, C) -1/0/+1
    table: LabelTable  # the labelled images only, as they go into the run folder
    train: NDArray[np.int64]  # rows with at least one positive
    val: NDArray[np.int64]
    left_out: int  # training or validation images without any positive


def simulate(
    collection: Collection, scheme: str, seed: int, *, splits: tuple[str, ...] = ("train", "val")
) -> LabelTable:
    """Single positives for the images of these splits, drawn from their clean labels."""
    rows = np.concatenate([collection.splits[name] for name in splits])
    rows = rows[collection.has_truth(rows)]
    if collection.truth is None or not len(rows):
        raise UsageError(f"--scheme {scheme} needs clean labels: give --truth or --labels")
    truth = collection.truth[rows]
    if scheme == "random":
        values = simulate_random(truth, seed)
    elif scheme == "dominant":
        if collection.areas is None:
            raise UsageError(
                "--scheme dominant needs per-class areas, which this data lacks: make the labels"
                " with  adagc simulate --scheme dominant --areas FILE  and give them as --labels"
            )
        values = simulate_dominant(collection.areas[rows] * truth, seed)
    else:
        values = truth.astype(np.int8)
    return LabelTable(
        images=tuple(collection.images.names[row] for row in rows),
        classes=collection.classes,
        values=values,
        kind="multi" if scheme == "clean" else "single",
        meta={"scheme": scheme, "seed": str(seed)},
    )


def observe(
    collection: Collection,
    *,
    labels: LabelTable | Path | str | None,
    scheme: str | None,
    label_seed: int,
    share: float = 1.0,
) -> Observed:
    """Labels that are given, that came with the images, or that are simulated from clean ones.

    With a share below 1 only so many of the training images are used, drawn by the label seed.
    """
    if labels is None and scheme is None:
        labels = collection.observed
    require_labels(labels, scheme)
    if labels is not None and _came_with(collection, labels):
        assert collection.observed is not None
        assert collection.observed_values is not None
        table, values = collection.observed, collection.observed_values
    else:
        if labels is not None:
            source = labels if isinstance(labels, LabelTable) else Path(labels)
            table = labels_of(source, collection.classes)
        else:
            assert scheme is not None
            table = simulate(collection, scheme, label_seed)
        values = match(table, collection.images.names)
    labelled = np.asarray((values > 0).any(axis=1))
    train, val = (collection.splits[name] for name in ("train", "val"))
    left_out = int((~labelled[train]).sum() + (~labelled[val]).sum())
    if left_out:
        log.warning(
            "%d of %d training and validation images have no positive label and are left out",
            left_out,
            len(train) + len(val),
        )
    train, val = train[labelled[train]], val[labelled[val]]
    if share < 1:
        kept = np.random.default_rng(label_seed).permutation(len(train))
        train = train[np.sort(kept[: max(1, round(share * len(train)))])]
    for name, rows in (("training", train), ("validation", val)):
        if len(rows) < 2:
            raise AdagcError(
                f"only {len(rows)} {name} image(s) have a positive label: label more images, or"
                " check that the names in the label file match the image files (adagc inspect)"
            )
    return Observed(values, table, train, val, left_out)


def _came_with(collection: Collection, labels: LabelTable | Path | str) -> bool:
    """Whether these labels were read and matched when the data was opened."""
    table = collection.observed
    if table is None or isinstance(labels, LabelTable):
        return table is not None and table == labels
    return table.source is not None and table.source.resolve() == Path(labels).resolve()

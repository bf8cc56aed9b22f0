"""The observed labels of a run: read from a label file, or simulated from clean labels."""

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
from adagc.training.records import ImageCounts
from adagc.training.settings import require_labels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observed:
    """Observed labels of every image of a collection, and the rows that can be trained on."""

    values: NDArray[np.int8]  # (N, C) -1/0/+1
    table: LabelTable  # labels of the labelled images only, as written to labels.csv
    train: NDArray[np.int64]  # rows of the training images with at least one positive label
    val: NDArray[np.int64]  # rows of the validation images with at least one positive label
    left_out: int  # number of training and validation images without a positive label


def simulate(
    collection: Collection, scheme: str, seed: int, *, splits: tuple[str, ...] = ("train", "val")
) -> LabelTable:
    """Simulate observed labels of the images in these splits, from their clean labels.

    Args:
        collection: The data set with its clean labels.
        scheme: "random" or "dominant" keep one positive label per image; "clean" keeps all labels.
        seed: Seed of the random choice.
        splits: Names of the splits; images without clean labels are left out.
    """
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
                "--scheme dominant needs the area of each class, which this data lacks: make labels"
                " with  adagc simulate --scheme dominant  (--root DATA if it has maps, else --areas"
                " FILE) and give them as --labels"
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
    """The observed labels: `labels` if given, else simulated, else those that came with the data.

    Args:
        collection: The data set.
        labels: A table, or the path of a label file.
        scheme: How to simulate labels from clean ones, see `simulate`.
        label_seed: Seed of the simulation, and of the choice that `share` makes.
        share: Share of the labelled training images to use, chosen at random.

    Raises:
        UsageError: If both `labels` and `scheme` are given, or if there are no labels at all.
        AdagcError: If fewer than two training or validation images have a positive label.
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
        values = match(table, collection.images.names, left_out=collection.left_out)
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


def count_images(collection: Collection, observed: Observed) -> ImageCounts:
    """How many images of the collection serve for what, and how many of them have which labels."""
    test = collection.splits.get("test", np.zeros(0, dtype=np.int64))
    clean = {
        name: int(collection.has_truth(rows).sum())
        for name, rows in (("train", observed.train), ("val", observed.val), ("test", test))
    }
    return ImageCounts(
        train=len(observed.train),
        val=len(observed.val),
        test=len(test),
        left_out=observed.left_out,
        train_clean=clean["train"],
        val_clean=clean["val"],
        test_clean=clean["test"],
        test_labelled=int((observed.values[test] > 0).any(axis=1).sum()),
    )


def _came_with(collection: Collection, labels: LabelTable | Path | str) -> bool:
    """Whether these are the labels that were read and matched when the data was opened."""
    table = collection.observed
    if table is None or isinstance(labels, LabelTable):
        return table is not None and table == labels
    return table.source is not None and table.source.resolve() == Path(labels).resolve()

"""Combine images, label files and a split rule into one `Collection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.dividing import SplitRule, divide
from adagc.errors import DataError
from adagc.images.array import ArrayScenes
from adagc.images.base import SceneDataset
from adagc.labels import LabelTable, MapFolder, locate, match, read_areas, read_labels
from adagc.labels.map_folder import SHARE


def assemble(
    images: SceneDataset,
    *,
    places: Sequence[str],
    rule: SplitRule,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    classes: Sequence[str] | None = None,
    areas: Path | None = None,
    maps: MapFolder | None = None,
    map_share: float = SHARE,
    left_out: Sequence[str] = (),
    description: str = "",
    notes: Sequence[str] = (),
) -> Collection:
    """Combine images with their labels and divide them into splits.

    Args:
        images: The images.
        places: Folder of each image relative to the data ("" for none). If the first folder is
            called train, val or test, it decides the split; otherwise each split gets the same
            share of every folder.
        rule: How images are divided where folders do not decide.
        labels: Observed labels. If given, each split gets the same share of every label instead of
            every folder.
        truth: Complete labels; without them there is no test split, unless folders or a file give
            one.
        classes: Names and order of the classes; None means those of `truth`, else of `maps`, else
            of `labels`.
        areas: File with the area of each class on each image of `truth`; see `read_areas`.
        maps: Maps of the images, from which areas come. Without `truth` they also tell which
            classes are present.
        map_share: Share of the labelled pixels of a map from which on a class counts as present.
        left_out: Names of images that exist but are not used; labels and splits may name them.
        description: One line for reports.
        notes: Remarks for the report; those about labels and splits are added to them.
    """
    clean = _table(truth, classes)
    if clean is not None and clean.kind == "single":
        raise DataError(
            f"{clean.source or 'truth'} names one label per image; clean labels name all of them:"
            " give this file as labels"
        )
    names = _names(classes, clean, maps)
    given = _table(labels, names or None)
    names = names or (given.classes if given is not None else ())
    remarks = list(notes)

    known = np.zeros(len(images), dtype=np.bool_)
    values = covered = None
    if maps is not None:
        found = maps.areas(images.names, names, left_out=left_out)
        covered, known = found.areas, found.labelled
        remarks += found.notes
        if clean is None:
            values = (covered >= np.float32(map_share)) & known[:, None]
            remarks.append(
                "clean labels come from the maps: a class counts as present where it covers at"
                f" least {map_share:.3g} of the labelled pixels"
            )
    if clean is not None:
        rows = locate(clean, images.names, left_out=left_out)
        known = rows >= 0
        values = np.zeros((len(images), len(names)), dtype=np.bool_)
        values[known] = clean.positive[rows[known]]
        if areas is not None and maps is None:
            covered = np.zeros(values.shape, dtype=np.float32)
            covered[known] = read_areas(areas, clean)[rows[known]]
        if not known.all():
            remarks.append(f"{(~known).sum()} of {len(images)} images have no row in the truth")

    groups = np.array(places, dtype=str)
    observed = labelled = None
    if given is not None:
        observed = match(given, images.names, left_out=left_out)
        positive = observed > 0
        labelled = np.asarray(positive.any(axis=1))
        groups = np.where(labelled, positive.argmax(axis=1), -1).astype(str)
    splits, more = divide(
        images,
        rule,
        places=places,
        groups=groups,
        known=known,
        labelled=labelled,
        tested=values is not None,
        left_out=left_out,
    )
    return Collection(
        images=images,
        classes=names,
        splits=splits,
        truth=values,
        known=known if values is not None else None,
        areas=covered,
        observed=given,
        observed_values=observed,
        left_out=tuple(left_out),
        description=description,
        notes=(*remarks, *more),
    )


def collect(
    images: SceneDataset | NDArray[Any],
    *,
    labels: Path | str | LabelTable | NDArray[Any] | None = None,
    truth: Path | str | LabelTable | NDArray[Any] | None = None,
    classes: Sequence[str] | None = None,
    split: Path | None = None,
    seed: int = 0,
    val_share: float = 0.2,
    test_share: float = 0.2,
    split_by_place: str | None = None,
    description: str = "",
) -> Collection:
    """Make a data set that can be trained on from any images; labels are matched by image name.

    Example:
        >>> import numpy as np
        >>> from adagc import RunConfig, collect, train
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 8)).astype(np.float32)  # embeddings; images: (N, bands, H, W)
        >>> y = np.eye(3, dtype=int)[rng.integers(0, 3, 60)]  # one observed label of each
        >>> data = collect(X, labels=y, classes=["field", "forest", "water"])
        >>> data
        Collection(60 rows of 8, 3 classes; train 48, val 12; observed labels)
        >>> train(RunConfig(epochs=2), "AN", collection=data)
        Run(in memory: AN, 2 epochs)

    Args:
        images: The images: an array (N, bands, height, width), or (N, D) of embeddings, or a
            `SceneDataset`.
        labels: Observed labels: a table, a file, or a matrix (N, C) in the order of an array:
            +1 seen, 0 not known, -1 seen to be absent.
        truth: Complete labels in one of these forms, for the images that test at least.
        classes: Names and order of the classes; None means those of `truth`, else of `labels`.
        split: CSV file with the columns `image,split`; None means a random split in which each
            part gets the same share of every observed label.
        seed: Seed of the random split.
        val_share: Share of all images that is used for validation.
        test_share: Share of the labelled images that is used for testing, as far as their complete
            labels are known. Images with complete labels but no observed one always test.
        split_by_place: Side of blocks in metres, or "tile": images in one block are in one part.
        description: One line for reports.

    Raises:
        DataError: If labels do not fit the images.
    """
    if isinstance(images, np.ndarray):
        images = ArrayScenes(images)
    return assemble(
        images,
        places=[""] * len(images),
        rule=SplitRule(split, seed, val_share, test_share, split_by_place),
        labels=_given(labels, images, classes, "labels"),
        truth=_given(truth, images, classes, "truth"),
        classes=classes,
        description=description,
    )


def _names(
    classes: Sequence[str] | None, clean: LabelTable | None, maps: MapFolder | None
) -> tuple[str, ...]:
    """The classes, as far as they are known before the observed labels are read."""
    if classes:
        return tuple(classes)
    if clean is not None:
        return clean.classes
    return () if maps is None else maps.classes


def _given(
    source: Path | str | LabelTable | NDArray[Any] | None,
    images: SceneDataset,
    classes: Sequence[str] | None,
    what: str,
) -> Path | LabelTable | None:
    """A matrix as a table whose rows are called as the images; anything else as it is."""
    if isinstance(source, str):
        return Path(source)
    if not isinstance(source, np.ndarray):
        return source
    if source.ndim != 2 or len(source) != len(images):
        shape = " x ".join(map(str, source.shape))
        raise DataError(
            f"{what} is an array of {shape} for {len(images)} images: give one row per image and"
            " one column per class"
        )
    names = tuple(classes) if classes else tuple(map(str, range(source.shape[1])))
    if len(names) != source.shape[1]:
        raise DataError(f"{what} has {source.shape[1]} columns for {len(names)} classes")
    if not np.isin(source, (-1, 0, 1)).all():
        raise DataError(f"{what} has other values than -1, 0 and 1: say what was seen by these")
    return LabelTable(images.names, names, source.astype(np.int8))


def _table(source: Path | LabelTable | None, classes: Sequence[str] | None) -> LabelTable | None:
    return None if source is None else labels_of(source, classes)


def labels_of(source: Path | LabelTable, classes: Sequence[str] | None) -> LabelTable:
    """Labels from a file or table, with one column for each of `classes`, in this order.

    With None as `classes` the classes of the file or table are kept as they are.
    """
    if not isinstance(source, LabelTable):
        return read_labels(Path(source), classes=classes)
    return source if classes is None else _reordered(source, classes)


def _reordered(table: LabelTable, classes: Sequence[str]) -> LabelTable:
    """The same labels with columns for `classes`; a class that is not among them is an error."""
    if table.classes == tuple(classes):
        return table
    unknown = [name for name in table.classes if name not in classes]
    if unknown:
        raise DataError(
            f"label table: class {unknown[0]!r} is not one of {', '.join(classes)}; "
            f"rename it or add it to the classes"
        )
    values = np.zeros((len(table), len(classes)), dtype=np.int8)
    values[:, [list(classes).index(name) for name in table.classes]] = table.values
    return replace(table, classes=tuple(classes), values=values)

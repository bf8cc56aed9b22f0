"""Combine images, label files and a split rule into one `Collection`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.places import read_place, split_by_place
from adagc.datasets.splits import stratified_split
from adagc.errors import DataError, UsageError
from adagc.images.array import ArrayScenes
from adagc.images.base import SceneDataset
from adagc.labels import LabelTable, MapFolder, locate, match, read_areas, read_labels
from adagc.labels.files import read_column
from adagc.labels.map_folder import SHARE

Rows = NDArray[np.int64]

# Accepted names of folders and in split files, and the split that each of them means.
PARTS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


_NO_TEST = "no truth was given, so no test split was set apart"


@dataclass(frozen=True)
class SplitRule:
    """How images are divided into training, validation and test where their folders do not say."""

    file: Path | None = None  # CSV file with the columns image,split; it decides before all else
    seed: int = 0
    val_share: float = 0.2  # share of all images
    test_share: float = 0.2  # share of all images with labels, as far as complete ones are known
    place: str | None = None  # side of blocks in metres, or "tile"; it decides instead of folders

    def __post_init__(self) -> None:
        if self.place is not None:
            read_place(self.place)
            if self.file is not None:
                raise UsageError("--split and --split-by-place cannot be given both: choose one")
        if min(self.val_share, self.test_share) < 0 or self.val_share + self.test_share >= 1:
            raise UsageError(
                f"val_share {self.val_share} and test_share {self.test_share} leave nothing to "
                f"train on; choose shares >= 0 that sum to less than 1"
            )


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
    named = _named_by_folders(places)
    if rule.place is not None:
        splits, more = _by_place(images, rule, tested=values is not None)
    elif rule.file is not None:
        named = read_split(rule.file, images.names, left_out)
        splits, more = _complete(named, groups, known, rule)
    elif named:
        splits, more = _complete(named, groups, known, rule)
    else:
        splits, more = _drawn(groups, known, labelled, rule)
    if values is not None and "test" in splits:
        tested = splits["test"][known[splits["test"]]]
        if len(tested) < len(splits["test"]):
            more.append(f"{len(splits['test']) - len(tested)} test images have no truth: left out")
        splits["test"] = tested
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
        rule=SplitRule(split, seed, val_share, test_share),
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


def _named_by_folders(places: Sequence[str]) -> dict[str, Rows]:
    """The splits that top folders are called by; empty unless one is train and another is not."""
    tops = np.array([PARTS.get(place.split("/")[0].lower(), "") for place in places])
    given = {part: np.flatnonzero(tops == part) for part in ("train", "val", "test")}
    given = {part: rows for part, rows in given.items() if len(rows)}
    return given if "train" in given and len(given) > 1 else {}


def _by_place(
    images: SceneDataset, rule: SplitRule, *, tested: bool
) -> tuple[dict[str, Rows], list[str]]:
    """Splits of whole blocks of images that lie together, and remarks for the report."""
    assert rule.place is not None
    test = rule.test_share if tested else 0.0
    shares = {"train": 1 - rule.val_share - test, "val": rule.val_share, "test": test}
    shares = {name: share for name, share in shares.items() if share > 0}
    splits, notes = split_by_place(images, read_place(rule.place), shares, rule.seed)
    return splits, [*notes, *(() if tested else (_NO_TEST,))]


def _drawn(
    groups: NDArray[np.str_],
    known: NDArray[np.bool_],
    labelled: NDArray[np.bool_] | None,
    rule: SplitRule,
) -> tuple[dict[str, Rows], list[str]]:
    """Splits drawn at random, and remarks about them for the report.

    All images with complete labels that cannot be trained on, because they have no observed one,
    are test images. If they are fewer than `test_share` of all images that have labels of any kind,
    others with complete labels are drawn. So if few images have complete labels, all of those test.

    Args:
        groups: Label or folder of each image, of which every split gets the same share.
        known: Whether the complete labels of each image are known, which a test image needs.
        labelled: Whether each image has an observed label; None if labels will be simulated from
            complete ones, so that any image with these can be trained on.
        rule: How to divide.
    """
    notes, splits = [], {}
    everything = np.arange(len(groups), dtype=np.int64)
    rest, wanted = everything, 0.0
    if not known.any():
        notes.append(_NO_TEST)
    elif rule.test_share > 0:
        trainable = known if labelled is None else labelled
        only_test = known & ~trainable
        candidates = everything[known & trainable]
        wanted = rule.test_share * np.count_nonzero(known | trainable)
        share = 0.0
        if len(candidates):
            share = min(max(wanted - only_test.sum(), 0.0) / len(candidates), 1.0)
        parts = stratified_split(groups[candidates], {"rest": 1 - share, "test": share}, rule.seed)
        splits["test"] = np.union1d(everything[only_test], candidates[parts["test"]])
        rest = np.setdiff1d(everything, splits["test"])
    # Where there are more test images than were wanted, validation must not take all of the rest.
    least = (1 - rule.test_share) * len(groups) - 1
    val_share = min(rule.val_share * len(groups) / max(len(rest), least), 1.0)
    shares = {"train": 1 - val_share, "val": val_share}
    parts = stratified_split(groups[rest], shares, rule.seed)
    return {name: rest[rows] for name, rows in parts.items()} | splits, notes


def _complete(
    given: Mapping[str, Rows],
    groups: NDArray[np.str_],
    known: NDArray[np.bool_],
    rule: SplitRule,
) -> tuple[dict[str, Rows], list[str]]:
    """Keep the given splits and add those that are not given, with remarks for the report.

    Validation images are taken from the training split; test images are those in no split whose
    complete labels are known.
    """
    splits, notes = dict(given), []
    if "train" not in splits:
        raise DataError(f"{rule.file}: no image is left for training; name some as train")
    unused = np.ones(len(groups), dtype=np.bool_)
    unused[np.concatenate(list(splits.values()))] = False
    if "test" not in splits and (unused & known).any():
        splits["test"] = np.flatnonzero(unused & known)
        unused &= ~known
    if "val" not in splits and rule.val_share > 0:
        train = splits["train"]
        shares = {"train": 1 - rule.val_share, "val": rule.val_share}
        parts = stratified_split(groups[train], shares, rule.seed)
        splits |= {name: train[rows] for name, rows in parts.items()}
        notes.append(f"no validation images were given: {len(splits['val'])} of train were taken")
    if unused.any():
        notes.append(f"{unused.sum()} images are in no split")
    order = [name for name in ("train", "val", "test") if name in splits]
    return {name: splits[name] for name in order}, notes


def read_split(path: Path, names: Sequence[str], left_out: Sequence[str] = ()) -> dict[str, Rows]:
    """Read a CSV file with the columns `image,split`.

    Args:
        path: The file.
        names: Names of all images, to which those of the file are matched.
        left_out: Names of images that are not used, whose rows are ignored.

    Returns:
        Split to positions in `names`. An image that the file does not name is in no split.
    """
    path = Path(path)
    images, cells, lines = read_column(path, "split")
    for image, cell, line in zip(images, cells, lines, strict=True):
        if cell.lower() not in PARTS:
            raise DataError(
                f"{path}, line {line}: expected an image and one of train, val, test, "
                f"not {f'{image},{cell}'!r}"
            )
    parts = [PARTS[cell.lower()] for cell in cells]
    wanted = [part for part in ("train", "val", "test") if part in parts]
    onehot = (np.array(parts)[:, None] == np.array(wanted)).astype(np.int8)
    table = LabelTable(
        tuple(images),
        tuple(wanted),
        onehot.reshape(len(parts), len(wanted)),
        kind="single",
        source=path,
        lines=np.array(lines, dtype=np.int64),
    )
    aligned = match(table, names, left_out=left_out)
    return {part: np.flatnonzero(aligned[:, i] > 0) for i, part in enumerate(wanted)}

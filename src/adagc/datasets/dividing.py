"""Which image is for what: as a file says, as folders are called, by place, or drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.places import read_place, split_by_place
from adagc.datasets.splits import stratified_split
from adagc.errors import DataError, UsageError
from adagc.images.base import SceneDataset
from adagc.labels import LabelTable, match
from adagc.labels.files import read_column

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


def divide(
    images: SceneDataset,
    rule: SplitRule,
    *,
    places: Sequence[str],
    groups: NDArray[np.str_],
    known: NDArray[np.bool_],
    labelled: NDArray[np.bool_] | None,
    tested: bool,
    left_out: Sequence[str] = (),
) -> tuple[dict[str, Rows], list[str]]:
    """Divide images into training, validation and test.

    Args:
        images: The images.
        rule: How they are divided.
        places: Folder of each image relative to the data ("" for none).
        groups: Label or folder of each image, of which every split gets the same share.
        known: Whether the complete labels of each image are known, which a test image needs.
        labelled: Whether each image has an observed label; None if labels will be simulated from
            complete ones, so that any image with these can be trained on.
        tested: Whether there are complete labels at all; test images without are then left out.
        left_out: Names of images that exist but are not used; a file may name them.

    Returns:
        The rows of each split, and remarks for the report.
    """
    named = _named_by_folders(places)
    if rule.place is not None:
        splits, notes = _by_place(images, rule, tested=tested)
    elif rule.file is not None:
        named = read_split(rule.file, images.names, left_out)
        splits, notes = _complete(named, groups, known, rule)
    elif named:
        splits, notes = _complete(named, groups, known, rule)
    else:
        splits, notes = _drawn(groups, known, labelled, rule)
    if tested and "test" in splits:
        test = splits["test"][known[splits["test"]]]
        if len(test) < len(splits["test"]):
            notes.append(f"{len(splits['test']) - len(test)} test images have no truth: left out")
        splits["test"] = test
    return splits, notes


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

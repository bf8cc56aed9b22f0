"""Opening the data set of a run, and the splits of its images as the run recorded them."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.dividing import PARTS
from adagc.datasets.registry import SETTINGS, find
from adagc.errors import DataError, UsageError, examples
from adagc.images.base import SceneDataset
from adagc.images.moments import LARGEST
from adagc.labels import LabelTable
from adagc.training.config import RunConfig
from adagc.training.contents import digests_of
from adagc.training.runs import Run
from adagc.training.settings import DataSettings

log = logging.getLogger(__name__)

# Settings that may be given with any data set, even one that does not take them: labels are then
# read for training, and the cache folder is a preference of the user for all data sets.
_ALWAYS = frozenset({"labels", "cache"})


def open_configured(config: DataSettings, *, labels: LabelTable | None = None) -> Collection:
    """Open the data set that the settings name.

    `labels`, if given, are used in place of the label file of the settings.
    """
    entry, fields = find(config.data), DataSettings.__dataclass_fields__
    given = {name: value for name in SETTINGS if (value := getattr(config, name)) is not None}
    options = {
        SETTINGS[name]: value
        for name, value in given.items()
        if name in entry.settings or (name not in _ALWAYS and value != fields[name].default)
    }
    if labels is not None and "labels" in entry.options:
        options["labels"] = labels
    return entry.open(**options)


def config_of(run: Run) -> RunConfig:
    """The settings of a run, finished or not; unknown names in its config.yaml are ignored."""
    fields = RunConfig.__dataclass_fields__
    told = {**run.former, **run.config}
    return RunConfig(**{name: value for name, value in told.items() if name in fields})


def check_values(images: SceneDataset, rows: NDArray[np.int64]) -> None:
    """Raise DataError if some of these images have infinite values; say how many miss values."""
    missing, infinite = images.flaws(rows)

    def named(which: NDArray[np.bool_]) -> str:
        return examples(images.names[row] for row in rows[which])

    if infinite.any():
        raise DataError(
            f"{infinite.sum()} of {len(rows)} images have infinite values, or values beyond"
            f" {LARGEST:.2g} ({named(infinite)}):"
            " repair them, or write NaN where a value is missing"
        )
    if missing.any():
        log.info(
            "%d of %d images have missing values (%s): the mean of the band is put in their place",
            missing.sum(),
            len(rows),
            named(missing),
        )


def split_text(collection: Collection) -> str:
    """The content of split.csv: the name of every image and its split."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "split"))
    for part, rows in collection.splits.items():
        writer.writerows((collection.images.names[row], part) for row in rows)
    return text.getvalue()


def recorded_split(run: Run) -> str:
    """The content of split.csv as the run recorded it; DataError if it is missing or damaged."""
    _recorded(run)
    return run.files.read("split.csv").decode()


def rows_of_split(run: Run, collection: Collection, split: str) -> NDArray[np.int64]:
    """The rows of exactly those images that the run recorded in split.csv under this split.

    Raises AdagcError if there is no such split, or if images of it are missing.
    """
    lines = _recorded(run)
    return _rows_of(run, lines, collection, split)


def recorded_rows(run: Run, collection: Collection) -> dict[str, NDArray[np.int64]]:
    """The rows of all images that the run recorded, by split: train, val and test.

    Raises AdagcError if images are missing.
    """
    lines = _recorded(run)
    there = {part for _, part in lines}
    parts = [part for part in dict.fromkeys(PARTS.values()) if part in there]
    return {part: _rows_of(run, lines, collection, part) for part in parts}


def _rows_of(
    run: Run, lines: Sequence[tuple[str, str]], collection: Collection, split: str
) -> NDArray[np.int64]:
    names = [name for name, part in lines if part == split]
    if not names:
        parts = dict.fromkeys(part for _, part in lines)
        raise UsageError(f"there is no split {split!r}: choose from {', '.join(parts)}")
    row_of = {name: row for row, name in enumerate(collection.images.names)}
    missing = [name for name in names if name not in row_of]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(names)} {split} images of this run are missing, for"
            f" example {missing[0]}: restore them, or give --root if they have moved"
        )
    return np.array([row_of[name] for name in names], dtype=np.int64)


def _recorded(run: Run) -> list[tuple[str, str]]:
    """Name and split of every image, as the run recorded them in split.csv."""
    try:
        text = io.StringIO(run.files.read("split.csv").decode(), newline="")
        lines = [(name, part) for name, part in list(csv.reader(text))[1:]]
    except FileNotFoundError:
        raise DataError(f"{run}/split.csv is missing: copy the run folder again") from None
    except (UnicodeDecodeError, ValueError, csv.Error) as error:
        raise DataError(
            f"{run}/split.csv is damaged ({error}): copy the run folder again"
        ) from None
    strange = next((part for _, part in lines if part not in PARTS.values()), None)
    if strange is not None:
        raise DataError(
            f"{run}/split.csv is damaged ({strange!r} is no split): copy the run folder again"
        )
    return lines


def check_same_data(run: Run, collection: Collection, *splits: str) -> None:
    """Raise DataError if images or clean labels of these splits (by default all) are not the run's.

    Images are compared by their names and values. A run of an older version has no record of the
    values, and of a split without clean labels there is nothing to compare.
    """
    recorded = run.inputs
    for split in splits or dict.fromkeys(part for _, part in _recorded(run)):
        now = digests_of(collection, rows_of_split(run, collection, split), split)
        for key in sorted(recorded.keys() & now.keys()):
            if recorded[key] != now[key]:
                raise DataError(
                    f"the {key} are not those that {run} was trained with (their content differs):"
                    " give the same ones, or add --other-data to use these"
                )

"""`adagc simulate`: from a file of clean labels to a file with one positive per image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, LabelFileError, UsageError, check_range
from adagc.labels.files import read_labels, write_labels
from adagc.labels.simulate import areas_from_maps, simulate_dominant, simulate_random
from adagc.labels.statistics import FlipRates, flip_rates
from adagc.labels.table import LabelTable


def simulate_file(
    truth: Path,
    out: Path,
    *,
    scheme: str,
    seed: int,
    areas: Path | None = None,
    ignore: Sequence[int] = (),
    force: bool = False,
) -> tuple[LabelTable, FlipRates]:
    """Write a file with one label per image, and return its table and flip rates.

    Comment lines at the top of the file say how it was made: scheme, seed and the hash of the
    clean labels.

    Args:
        truth: Label file with all labels of the images.
        out: File to write.
        scheme: "random" keeps a random label of each image, "dominant" that of the class that
            covers the largest area.
        seed: Seed of the random choice; with "dominant" it decides between equal areas.
        areas: For "dominant": CSV file of areas, or .npy file of class maps (N, H, W) in the order
            of the rows of `truth`.
        ignore: Values of the class maps that mean no class.
        force: Replace an existing file, which otherwise is a UsageError.
    """
    check_range("seed", seed, 0)
    clean = read_labels(truth, kind="multi")
    if out.exists() and out.samefile(truth):
        raise UsageError(f"{out} is the file of clean labels itself: choose another --out")
    if scheme == "random":
        values = simulate_random(clean.positive, seed)
    else:
        if areas is None:
            raise UsageError("--scheme dominant needs --areas: a CSV of areas or .npy class maps")
        values = simulate_dominant(_areas(areas, clean, ignore) * clean.positive, seed)
    table = LabelTable(
        images=clean.images,
        classes=clean.classes,
        values=values,
        kind="single",
        meta={"scheme": scheme, "seed": str(seed), "source": f"sha256 {clean.hash}"},
    )
    if out.is_file() and not force:
        raise UsageError(f"{out} exists: choose another --out, or replace it with --force")
    write_labels(table, out)
    return table, flip_rates(clean.positive, values)


def _areas(path: Path, clean: LabelTable, ignore: Sequence[int]) -> NDArray[np.float64]:
    """The area of each class on each image, (N, C), in the order of the clean table."""
    if path.suffix == ".npy":
        try:
            maps = np.load(path, allow_pickle=False, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as an array ({error})") from None
        if maps.ndim != 3 or len(maps) != len(clean) or maps.dtype.kind not in "iu":
            raise DataError(
                f"{path} holds {maps.dtype} of the shape {maps.shape}: give one map of whole"
                f" numbers per row of the label file, ({len(clean)}, height, width)"
            )
        return areas_from_maps(maps, len(clean.classes), ignore=tuple(ignore)).astype(np.float64)
    return _areas_csv(path, clean)


def _areas_csv(path: Path, clean: LabelTable) -> NDArray[np.float64]:
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.reader(handle))
    except (OSError, UnicodeDecodeError) as error:
        raise LabelFileError(f"{path} cannot be read ({error}): save it as UTF-8 CSV") from None
    if not rows or set(rows[0][1:]) != set(clean.classes):
        raise LabelFileError(
            f"{path}, line 1: the header must be image and the classes of the label file"
            f" ({', '.join(clean.classes[:3])}, ...)"
        )
    place = {name: i for i, name in enumerate(clean.images)}
    columns = [rows[0].index(name) for name in clean.classes]
    areas = np.zeros((len(clean), len(clean.classes)))
    missing = set(clean.images)
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if row[0] not in place:
            raise LabelFileError(
                f"{path}, line {number}: image {row[0]!r} is not in the label file"
            )
        try:
            values = np.array([float(row[column]) for column in columns])
        except (ValueError, IndexError):
            values = np.array([np.nan])
        if not (values >= 0).all():  # also refuses NaN
            raise LabelFileError(
                f"{path}, line {number}: expected {len(columns)} numbers of at least 0 after the"
                " image; correct the line"
            )
        areas[place[row[0]]] = values
        missing.discard(row[0])
    if missing:
        raise LabelFileError(
            f"{path} has no areas for {len(missing)} images, {min(missing)!r} first"
        )
    return areas


__all__ = ["simulate_file"]

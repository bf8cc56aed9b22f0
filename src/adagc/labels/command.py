"""`adagc simulate`: from a file of clean labels to a file with one positive per image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, UsageError, check_range, examples
from adagc.labels.areas import read_areas
from adagc.labels.files import read_labels, write_labels
from adagc.labels.map_folder import MapFolder
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
    maps: MapFolder | None = None,
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
        maps: For "dominant", instead of `areas`: a folder with a map of each image.
        force: Replace an existing file, which otherwise is a UsageError.
    """
    check_range("seed", seed, 0)
    clean = read_labels(truth, kind="multi")
    if out.exists() and out.samefile(truth):
        raise UsageError(f"{out} is the file of clean labels itself: choose another --out")
    if scheme == "random":
        values = simulate_random(clean.positive, seed)
    else:
        values = simulate_dominant(_areas(areas, maps, clean, ignore) * clean.positive, seed)
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


def _areas(
    path: Path | None, folder: MapFolder | None, clean: LabelTable, ignore: Sequence[int]
) -> NDArray[np.float64]:
    """The area of each class on each image, (N, C), in the order of the clean table."""
    if (path is None) == (folder is None):
        raise UsageError(
            "--scheme dominant needs either --areas (a CSV of areas or .npy class maps) or --maps"
            " and --map-classes (a folder of class maps)"
        )
    if folder is not None:
        found = folder.areas(clean.images, clean.classes)
        lacking = [clean.images[row] for row in np.flatnonzero(~found.labelled).tolist()]
        if lacking:
            raise DataError(
                f"{folder.root} has no map with a labelled pixel for {len(lacking)} of {len(clean)}"
                f" images ({examples(lacking)}): add it, or remove their rows"
            )
        return found.areas.astype(np.float64)
    assert path is not None
    if path.suffix == ".npy":
        try:
            maps = np.load(path, allow_pickle=False, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read as an array ({error})") from None
        if maps.ndim != 3 or len(maps) != len(clean) or maps.dtype.kind not in "iu":
            raise DataError(
                f"{path} holds {maps.dtype} of the shape {maps.shape}: give one map of whole"
                f" numbers per row of the label file, ({len(clean)}, height, width)"
            )
        return areas_from_maps(maps, len(clean.classes), ignore=tuple(ignore)).astype(np.float64)
    return read_areas(path, clean)


__all__ = ["simulate_file"]

"""Areas of the 19 classes from the reference maps of reBEN."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.layout import Layout
from adagc.datasets.bigearthnet.nomenclature import CLASS_OF_CODE, CLASSES
from adagc.datasets.bigearthnet.patches import Patches
from adagc.errors import DataError
from adagc.images.store.place import default_base
from adagc.labels.maps import class_areas

COUNTS: Final = "map-counts.bin"  # what was counted in every map: it is never counted again


def map_file(folder: Path, name: str) -> Path:
    """The reference map of a patch."""
    return folder / name.rsplit("_", 2)[0] / name / f"{name}_reference_map.tif"


def counts_file(layout: Layout) -> Path:
    """Where the pixel counts of a published copy are kept, whose own folder may be read-only."""
    key = hashlib.sha256(os.fspath(layout.root.resolve()).encode()).hexdigest()[:20]
    return default_base() / f"maps-{key}" / COUNTS


def areas_of(
    layout: Layout, patches: Patches, *, workers: int = 1, cache: Path | None = None
) -> tuple[NDArray[np.float32], int]:
    """The share of each class among the labelled pixels of each patch, (N, 19).

    Args:
        layout: Where the maps are.
        patches: The patches.
        workers: Threads that count side by side.
        cache: File for the pixel counts; `counts_file` by default.

    Returns:
        The shares, and how many maps are missing or cannot be read, whose rows are zeros.
    """
    if layout.maps is None:
        raise DataError(
            f"{layout.root}: there are no reference maps (Reference_Maps/<tile>/<patch>/<patch>"
            "_reference_map.tif), from which areas of classes are known: "
            + (
                "version 1 has none, use version 2 (reBEN) or the scheme random"
                if layout.version == 1
                else "put that folder of reBEN beside its images, or use the scheme random"
            )
        )
    files = [map_file(layout.maps, name) for name in patches.names]
    broken: list[Path] = []
    areas = class_areas(
        files,
        CLASS_OF_CODE,
        len(CLASSES),
        workers=workers,
        cache=cache or counts_file(layout),
        root=layout.maps,
        broken=lambda file, why: broken.append(file),
    )
    if len(broken) == len(files):
        raise DataError(f"{layout.maps}: none of the reference maps can be read, not {broken[0]}")
    return areas, len(broken)

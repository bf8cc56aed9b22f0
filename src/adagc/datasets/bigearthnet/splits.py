"""Which patches train, validate and test, and whether they are those that were published.

A copy with other patches than the published splits gives scores that cannot be compared with
published ones, so every start says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.patches import CLOUDY, SPLITS, Patches
from adagc.datasets.dividing import SplitRule, read_split
from adagc.datasets.places import read_place, split_by_place
from adagc.datasets.splits import stratified_split
from adagc.errors import DataError
from adagc.images.base import SceneDataset

# Patches of version 2 without snow, clouds and shadow: what metadata.parquet names.
PUBLISHED: Final = {"train": 237_871, "val": 122_342, "test": 119_825}
WHOLE: Final = sum(PUBLISHED.values())
_SHARES: Final = {"train": 0.5, "val": 0.25, "test": 0.25}  # where there are no published splits


@dataclass(frozen=True)
class Splits:
    """The rows of every part, and what there is to say about them."""

    rows: dict[str, NDArray[np.int64]]
    sentence: str  # where they come from, and how large they are
    warning: str | None = None  # how they differ from the published ones


def splits_of(patches: Patches, rule: SplitRule, version: int) -> Splits:
    """The splits in a file, or the published ones, or drawn ones if there are none.

    Args:
        patches: The patches that are used.
        rule: The file, if there is one, and the seed of drawn splits.
        version: Version of BigEarthNet.

    Raises:
        DataError: No patch is left for training; or all patches of version 2 are there, but in
            other splits than were published.
    """
    warning, file = None, rule.file
    if file is not None:
        rows = read_split(file, patches.names)
        origin = f"splits of {file.name}"
    elif (patches.split >= 0).any():
        rows = {part: own for part in SPLITS if len(own := patches.rows_of(part))}
        origin = "published splits"
        if version == 2:
            clear = patches.flags & CLOUDY == 0
            warning = compared({part: int(clear[own].sum()) for part, own in rows.items()})
            if warning is None:
                origin += " of all patches of reBEN"
    else:
        # By the first label: each split gets its share of every class.
        first = np.where(patches.labels.any(axis=1), patches.labels.argmax(axis=1), -1)
        rows = stratified_split(first, _SHARES, rule.seed)
        origin = f"no published splits here, drawn with seed {rule.seed}"
    if "train" not in rows:
        raise DataError(f"{file or 'the metadata'}: no patch is left for training")
    sizes = {part: len(own) for part, own in rows.items()}
    least = min(sizes.values())
    told = ", ".join(f"{size:,} {part}" for part, size in sizes.items())
    ratio = " : ".join(f"{size / least:.2g}" for size in sizes.values()) if least else ""
    return Splits(rows, f"{origin}: {told} ({ratio})", warning)


def splits_by_place(images: SceneDataset, place: str, seed: int) -> Splits:
    """Splits of whole blocks of patches, in place of the published ones."""
    rows, notes = split_by_place(images, read_place(place), _SHARES, seed)
    return Splits(rows, "; ".join(notes))


def compared(sizes: Mapping[str, int]) -> str | None:
    """How these sizes differ from those of the published splits; None if they do not.

    Raises:
        DataError: There are as many patches as were published, but in splits of other sizes.
    """
    short = {part: PUBLISHED[part] - sizes.get(part, 0) for part in PUBLISHED}
    if not any(short.values()):
        return None
    expected = ", ".join(f"{size:,} {part}" for part, size in PUBLISHED.items())
    if sum(sizes.values()) == WHOLE:
        found = ", ".join(f"{size:,} {part}" for part, size in sizes.items())
        raise DataError(
            f"the metadata names all {WHOLE:,} patches of reBEN, but puts {found} into the splits"
            f" instead of {expected}: get metadata.parquet again, or give your own splits as"
            " --split FILE"
        )
    differ = [
        f"{abs(count):,} {'fewer' if count > 0 else 'more'} {part}"
        for part, count in short.items()
        if count
    ]
    return (
        f"this is not the whole reBEN, whose splits have {expected} patches: here are"
        f" {', '.join(differ)}; scores cannot be compared with those on the published splits"
    )


__all__ = ["PUBLISHED", "WHOLE", "Splits", "compared", "splits_by_place", "splits_of"]

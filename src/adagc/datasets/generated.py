"""What generated data sets have in common: how many scenes a split has, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError

# First scene number of each split. The gaps let a split grow without changing the others.
FIRST_SCENE = {"train": 0, "val": 600_000, "test": 800_000}
_LAST_SCENE = 1_000_000


def counts_of(scenes: int) -> dict[str, int]:
    """Number of scenes of each split: for `scenes` to train on, half as many, and as many."""
    return {"train": scenes, "val": scenes // 2, "test": scenes}


def number_scenes(counts: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """The numbers of the scenes of each split, which no other split can have.

    Args:
        counts: How many scenes each split has.

    Raises:
        UsageError: A split has more scenes than there are numbers for it.
    """
    ends = {"train": FIRST_SCENE["val"], "val": FIRST_SCENE["test"], "test": _LAST_SCENE}
    for split, count in counts.items():
        room = ends[split] - FIRST_SCENE[split]
        if not 0 <= count <= room:
            raise UsageError(f"n_{split}={count} is out of range: choose 0 to {room} scenes")
    return {split: FIRST_SCENE[split] + np.arange(count) for split, count in counts.items()}


def rows_of(counts: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """The rows of the scenes of each split, where one split comes after the other."""
    borders = np.cumsum([0, *counts.values()])
    return {split: np.arange(borders[k], borders[k + 1]) for k, split in enumerate(counts)}

"""The data set `synthetic`: generated scenes, so that nothing has to be downloaded."""

from __future__ import annotations

import numpy as np

from adagc.datasets.collection import Collection
from adagc.datasets.registry import DataSet
from adagc.errors import UsageError
from adagc.images.synthetic.landcover import CLASSES, MINIMUM_AREA
from adagc.images.synthetic.scenes import SyntheticScenes

# First scene number of each split. The gaps let a split grow without changing the others.
FIRST_SCENE = {"train": 0, "val": 600_000, "test": 800_000}
_LAST_SCENE = 1_000_000


def synthetic_collection(
    *,
    n_train: int = 1500,
    n_val: int = 500,
    n_test: int = 1000,
    size: int = 32,
    seed: int = 0,
    temper: float = 0.5,
    difficulty: float = 1.0,
) -> Collection:
    """Generate scenes with labels, class areas and splits.

    A class is a label of a scene if it covers at least 1.5 % of the pixels; scenes also hold
    smaller patches of classes that are not labels. When a split grows, its scenes keep their
    number, name and content.

    Args:
        n_train: Number of training scenes.
        n_val: Number of validation scenes.
        n_test: Number of test scenes.
        size: Height and width of a scene in pixels, 16 to 256.
        seed: Seed of all scenes; another seed gives entirely different scenes.
        temper: How far the class frequencies are evened out: 0 keeps those of refined BigEarthNet
            (37 % arable land, but 0.3 % beaches, which a small data set would not contain), 1 makes
            all classes equally frequent. The default takes the square root of the real frequencies:
            the rarest class is in over 2 % of the scenes, and the mean number of labels stays at
            about 2.9.
        difficulty: Strength of everything that makes classes harder to tell apart: how they vary
            from scene to scene, haze, relief, noise. From 0, where there is none of it, to 3.

    Raises:
        UsageError: An option is outside its range.
    """
    counts = {"train": n_train, "val": n_val, "test": n_test}
    ends = {"train": FIRST_SCENE["val"], "val": FIRST_SCENE["test"], "test": _LAST_SCENE}
    for split, count in counts.items():
        if not 0 <= count <= ends[split] - FIRST_SCENE[split]:
            room = ends[split] - FIRST_SCENE[split]
            raise UsageError(f"n_{split}={count} is out of range: choose 0 to {room} scenes")
    blocks = [FIRST_SCENE[split] + np.arange(count) for split, count in counts.items()]
    images = SyntheticScenes(
        np.concatenate(blocks), size=size, seed=seed, temper=temper, difficulty=difficulty
    )
    borders = np.cumsum([0, *counts.values()])
    splits = {
        split: np.arange(borders[k], borders[k + 1], dtype=np.int64)
        for k, split in enumerate(counts)
    }
    areas = images.areas()
    return Collection(
        images=images,
        classes=CLASSES,
        splits=splits,
        truth=areas >= MINIMUM_AREA,
        areas=areas,
        description=(
            f"{len(images)} invented Sentinel-1 and -2 scenes of {size} x {size} pixels, "
            f"seed {seed}, temper {temper:g}, difficulty {difficulty:g}"
        ),
        notes=(
            "The scenes are invented: scores compare methods, they do not predict scores on real "
            "images.",
            f"A class counts as present from {MINIMUM_AREA:.1%} of the pixels on.",
        ),
    )


def _open(
    *,
    scenes: int = 1500,
    size: int = 32,
    seed: int = 0,
    temper: float = 0.5,
    difficulty: float = 1.0,
) -> Collection:
    """Generate `scenes` training scenes, half as many validation and as many test scenes."""
    return synthetic_collection(
        n_train=scenes,
        n_val=scenes // 2,
        n_test=scenes,
        size=size,
        seed=seed,
        temper=temper,
        difficulty=difficulty,
    )


DATASET = DataSet(
    name="synthetic",
    about="made-up Sentinel-like scenes, 14 bands, 19 classes; nothing to download",
    home=_open,
    title="synthetic scenes",
    brings_truth=True,
)

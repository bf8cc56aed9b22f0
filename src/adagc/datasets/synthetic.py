"""The data set `synthetic`: generated scenes, so that nothing has to be downloaded."""

from __future__ import annotations

import numpy as np

from adagc.datasets.collection import Collection
from adagc.datasets.generated import counts_of, number_scenes, rows_of
from adagc.datasets.registry import DataSet
from adagc.images.synthetic.landcover import CLASSES, MINIMUM_AREA
from adagc.images.synthetic.scenes import SyntheticScenes


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
    numbers = number_scenes(counts)
    images = SyntheticScenes(
        np.concatenate([*numbers.values()]),
        size=size,
        seed=seed,
        temper=temper,
        difficulty=difficulty,
    )
    areas = images.areas()
    return Collection(
        images=images,
        classes=CLASSES,
        splits=rows_of(counts),
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
    counts = counts_of(scenes)
    return synthetic_collection(
        n_train=counts["train"],
        n_val=counts["val"],
        n_test=counts["test"],
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
    licence="The scenes are generated: nobody has rights in them.",
)

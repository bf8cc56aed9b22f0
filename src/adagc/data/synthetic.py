"""Invented Sentinel scenes in the shape of refined BigEarthNet, made in seconds, nothing to load.

Scenes have 14 bands, the 19 land-cover classes of refined BigEarthNet, its mean number of labels
and, as far as `temper` allows, its class frequencies. They serve demonstrations and tests; scores
on them say nothing about real images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.data.base import Collection, SceneDataset
from adagc.data.synthetic_landcover import CLASSES, MINIMUM_AREA, compose, grow, parcels
from adagc.data.synthetic_noise import SceneNoise
from adagc.data.synthetic_spectra import BANDS, render
from adagc.errors import UsageError

# Scene numbers of a split start here, so that a larger training split leaves the others alone.
FIRST_SCENE = {"train": 0, "val": 600_000, "test": 800_000}
_LAST_SCENE = 1_000_000
_SIZES = range(16, 257)
_PIXELS_AT_ONCE = 2**17  # about 60 MB of working memory
_LAYOUT, _APPEARANCE = 0, 1  # random streams: a change of the spectra leaves the maps alone


class SyntheticScenes(SceneDataset):
    """Invented scenes, held in memory as int16.

    Radar bands (VV, VH) are in hundredths of a decibel (-1850 is -18.5 dB), optical bands are
    reflectance times 10,000 (2500 is 0.25). Scene `scene_000123` depends on its number, `seed`,
    `temper`, `size` and `difficulty` alone, not on the other scenes it is built with.

    Args:
        numbers: Which scenes to make; each is a world of its own.
        size: Pixels per side, 16 to 256; the same landscape, sampled more finely.
        seed: Another seed, another world.
        temper: See `synthetic_collection`.
        difficulty: See `synthetic_collection`.
    """

    maps: NDArray[np.uint8]  # (N, size, size) class of every pixel

    def __init__(
        self,
        numbers: NDArray[np.int64],
        *,
        size: int = 32,
        seed: int = 0,
        temper: float = 0.5,
        difficulty: float = 1.0,
    ) -> None:
        _check(size=size, seed=seed, temper=temper, difficulty=difficulty)
        self.names = tuple(f"scene_{number:06d}" for number in numbers)
        self.bands = BANDS
        self.shape = (len(BANDS), size, size)
        self.dtype: np.dtype[Any] = np.dtype(np.int16)
        self.maps = np.empty((len(numbers), size, size), dtype=np.uint8)
        self._images = np.empty((len(numbers), *self.shape), dtype=np.int16)
        step = max(1, _PIXELS_AT_ONCE // size**2)
        for start in range(0, len(numbers), step):
            rows = slice(start, start + step)
            layout = SceneNoise(seed, numbers[rows], stream=_LAYOUT)
            planned = compose(layout, temper=temper)
            parcel = parcels(layout, size)
            self.maps[rows] = grow(layout, planned, parcel)
            look = SceneNoise(seed, numbers[rows], stream=_APPEARANCE)
            self._images[rows] = render(look, self.maps[rows], parcel, difficulty=difficulty)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.int16]:
        """Copies the images out of memory."""
        return self._images[np.asarray(rows, dtype=np.int64)]

    def areas(self) -> NDArray[np.float32]:
        """Share of each scene that each class covers, (N, C), counted on the maps."""
        flat = self.maps.reshape(len(self), -1)
        cells = flat + np.arange(len(self))[:, None] * len(CLASSES)
        counts = np.bincount(cells.ravel(), minlength=len(self) * len(CLASSES))
        return (counts.reshape(len(self), -1) / max(flat.shape[1], 1)).astype(np.float32)


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
    """Invented scenes with labels, class areas and splits.

    A class is labelled where it covers at least 1.5 % of the pixels; scenes also hold smaller
    specks that are not labelled. Scenes keep their number, name and content when a split grows.

    Args:
        n_train: Training scenes; likewise `n_val` and `n_test`.
        n_val: Validation scenes.
        n_test: Test scenes.
        size: Pixels per side, 16 to 256.
        seed: Another seed, another world.
        temper: From 0, the class frequencies of refined BigEarthNet (37 % arable land, but 0.3 %
            beaches: none in a small collection), to 1, all classes equally frequent. The default
            takes the square root of the real frequencies: the rarest class is in over 2 % of the
            scenes, and the mean number of labels stays at about 2.9.
        difficulty: Scales all that blurs the classes: how they vary from scene to scene, haze,
            relief, noise. 0 is a clean world.

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


def _check(*, size: int, seed: int, temper: float, difficulty: float) -> None:
    if size not in _SIZES:
        raise UsageError(f"size={size} is out of range: choose 16 to 256 pixels per side")
    if seed < 0:
        raise UsageError(f"seed={seed} is negative: choose 0 or more")
    if not 0 <= temper <= 1:
        raise UsageError(f"temper={temper} is out of range: choose 0 (real frequencies) to 1")
    if not 0 <= difficulty <= 3:
        raise UsageError(f"difficulty={difficulty} is out of range: choose 0 to 3")

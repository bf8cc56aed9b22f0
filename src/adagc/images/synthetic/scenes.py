"""Synthetic Sentinel scenes that resemble refined BigEarthNet and are generated in seconds.

Scenes have 14 bands, the 19 land-cover classes of refined BigEarthNet, its mean number of labels
and, depending on `temper`, its class frequencies. They are for demonstrations and tests; scores on
them do not predict scores on real images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError
from adagc.images.base import SceneDataset
from adagc.images.synthetic.landcover import CLASSES, compose, grow, parcels
from adagc.images.synthetic.noise import SceneNoise
from adagc.images.synthetic.spectra import BANDS, render

_SIZES = range(16, 257)
_PIXELS_AT_ONCE = 2**17  # about 60 MB of working memory
# Independent streams of random numbers: a change of the spectra does not change the maps.
_LAYOUT, _APPEARANCE = 0, 1


class SyntheticScenes(SceneDataset):
    """Synthetic scenes, generated when the object is made and held in memory as int16.

    Radar bands (VV, VH) are in hundredths of a decibel (-1850 is -18.5 dB), optical bands are
    reflectance times 10,000 (2500 is 0.25). Scene `scene_000123` depends on its number, `seed`,
    `temper`, `size` and `difficulty` alone, not on the other scenes it is made with.

    Args:
        numbers: Numbers of the scenes to make; each number is a different scene.
        size: Height and width in pixels, 16 to 256; more pixels show the landscape more finely.
        seed: Seed of all scenes; another seed gives entirely different scenes.
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
        """See `SceneDataset.gather`."""
        return self._images[np.asarray(rows, dtype=np.int64)]

    def areas(self) -> NDArray[np.float32]:
        """Share of the pixels of each scene that each class covers, (N, C)."""
        flat = self.maps.reshape(len(self), -1)
        cells = flat + np.arange(len(self))[:, None] * len(CLASSES)
        counts = np.bincount(cells.ravel(), minlength=len(self) * len(CLASSES))
        return (counts.reshape(len(self), -1) / max(flat.shape[1], 1)).astype(np.float32)


def _check(*, size: int, seed: int, temper: float, difficulty: float) -> None:
    if size not in _SIZES:
        raise UsageError(f"size={size} is out of range: choose 16 to 256 pixels per side")
    if seed < 0:
        raise UsageError(f"seed={seed} is negative: choose 0 or more")
    if not 0 <= temper <= 1:
        raise UsageError(f"temper={temper} is out of range: choose 0 (real frequencies) to 1")
    if not 0 <= difficulty <= 3:
        raise UsageError(f"difficulty={difficulty} is out of range: choose 0 to 3")

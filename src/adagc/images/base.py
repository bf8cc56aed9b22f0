"""The interface that all images have: values by row number, without labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.composites import natural
from adagc.images.footprint import Place, outline_place
from adagc.images.moments import CHUNK_VALUES, Kept, Moments, Remembered, flaws

# Values per band from which on moments are kept; for smaller images they would take as much memory
# as the values themselves.
_WORTH = 64
FEATURES = 32  # channels from which on maps are taken for features of a network, not for bands


def is_feature_map(shape: tuple[int, ...]) -> bool:
    """Whether images are stored feature maps of a network: deep, and with few positions.

    Hyperspectral images have many bands too, but far more pixels than bands.
    """
    return len(shape) == 3 and shape[0] >= FEATURES and shape[0] > shape[1] * shape[2]


class SceneDataset(ABC):
    """Images (or embeddings) without labels, so that they can be used with any label file."""

    names: tuple[str, ...]  # unique name of each image, to which label files refer
    bands: tuple[str, ...]  # names of the bands, in the order of the first axis of an image
    shape: tuple[int, ...]  # shape of one image: (bands, H, W), or (D,) for embeddings
    dtype: np.dtype[Any]  # missing values are NaN, so only floats can have them

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Raw values of these images, (len(rows), *shape), in a new array the caller may change."""

    def geometry(self, rows: NDArray[np.int64]) -> list[bytes | None]:
        """The footprint of each of these images on earth as well-known binary, in `crs`.

        None for an image whose place is not known, as those of most data sets.
        """
        return [None] * len(rows)

    def place(self, row: int) -> Place | None:
        """Where one image lies in longitude and latitude; None if that is not known."""
        return outline_place(self.geometry(np.array([row]))[0], self.crs)

    @property
    def crs(self) -> str | None:
        """Coordinate reference system of the footprints: "EPSG:32633", or its WKT.

        None if it is not known, or if no image has a place.
        """
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What else there is to say about them, for `adagc inspect`; a sentence each."""
        return ()

    @property
    def side(self) -> int | None:
        """Side in pixels of the files, before they were resized; None if that is not known."""
        return None

    @property
    def depth(self) -> np.dtype[Any]:
        """The dtype of the source of the images, before missing values in it became NaN."""
        return self.dtype

    def moments(self, rows: NDArray[np.int64]) -> Moments | None:
        """Count, mean, spread, minimum and maximum of each band over these images.

        Each image is measured once and the result is kept for later calls. None for embeddings and
        very small images, where reading the values again takes no longer.
        """
        kept = self.measured(rows)
        return None if kept is None else kept.combined()

    def flaws(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of these images have missing values (NaN), and which have infinite ones."""
        missing, infinite = self._flaws
        return missing[rows], infinite[rows]

    @cached_property
    def _flaws(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of all images have missing values, and which have infinite ones."""
        rows = np.arange(len(self), dtype=np.int64)
        missing, infinite = np.zeros(len(self), np.bool_), np.zeros(len(self), np.bool_)
        if self.dtype.kind != "f":
            return missing, infinite
        kept = self.measured(rows)
        if kept is not None:
            return kept.flaws()
        step = max(1, CHUNK_VALUES // math.prod(self.shape))
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step]
            missing[chunk], infinite[chunk] = flaws(self.gather(chunk))
        return missing, infinite

    def measured(self, rows: NDArray[np.int64]) -> Kept | None:
        """The moments of each of these images; None where `moments` is."""
        return None if math.prod(self.shape[1:]) < _WORTH else self._measured.of(rows)

    @cached_property
    def _measured(self) -> Remembered:
        return Remembered(self.gather, len(self), self.shape, self.dtype)

    @property
    def is_image(self) -> bool:
        """Whether an item is a picture (bands, H, W) rather than an embedding (D,)."""
        return len(self.shape) == 3

    @property
    def rgb(self) -> tuple[int, int, int]:
        """Positions of the bands to show as red, green and blue.

        They are found by name; see `adagc.images.composites.natural`.
        """
        return natural(self.bands)

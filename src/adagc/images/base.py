"""The interface that all images have: values by row number, without labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.moments import Moments, Remembered

# Values per band from which on moments are kept; for smaller images they would take as much memory
# as the values themselves.
_WORTH = 64


class SceneDataset(ABC):
    """Images (or embeddings) without labels, so that they can be used with any label file."""

    names: tuple[str, ...]  # unique name of each image, to which label files refer
    bands: tuple[str, ...]  # names of the bands, in the order of the first axis of an image
    shape: tuple[int, ...]  # shape of one image: (bands, H, W), or (D,) for embeddings
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Raw values of these images, (len(rows), *shape), in a new array the caller may change."""

    def moments(self, rows: NDArray[np.int64]) -> Moments | None:
        """Count, mean, spread, minimum and maximum of each band over these images.

        Each image is measured once and the result is kept for later calls. None for embeddings and
        very small images, where reading the values again takes no longer.
        """
        if math.prod(self.shape[1:]) < _WORTH:
            return None
        return self._measured.of(rows)

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

        They are found by name; otherwise the first three bands, or three times the first.
        """
        lookup = {name.lower(): i for i, name in enumerate(self.bands)}
        for triple in (("red", "green", "blue"), ("b04", "b03", "b02"), ("r", "g", "b")):
            if all(name in lookup for name in triple):
                return lookup[triple[0]], lookup[triple[1]], lookup[triple[2]]
        return (0, 1, 2) if len(self.bands) >= 3 else (0, 0, 0)

"""Images by index; what is known about them lives apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.moments import Moments, Remembered

_WORTH = 64  # values in a band: below it moments would take as much room as the values


class SceneDataset(ABC):
    """Images only. Labels live apart, so the same images serve with any label file."""

    names: tuple[str, ...]  # unique; what label files call the images
    bands: tuple[str, ...]  # in the order of the first axis of an image
    shape: tuple[int, ...]  # of one image: (bands, H, W), or (D,) for embeddings
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Raw values of these images, (len(rows), *shape), a fresh array the caller may change."""

    def moments(self, rows: NDArray[np.int64]) -> Moments | None:
        """Count, mean, spread and extremes of these images; None where values are read as fast.

        An image is measured once, however many runs and splits ask for it.
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
        """The bands that make a natural picture, for people to look at."""
        lookup = {name.lower(): i for i, name in enumerate(self.bands)}
        for triple in (("red", "green", "blue"), ("b04", "b03", "b02"), ("r", "g", "b")):
            if all(name in lookup for name in triple):
                return lookup[triple[0]], lookup[triple[1]], lookup[triple[2]]
        return (0, 1, 2) if len(self.bands) >= 3 else (0, 0, 0)

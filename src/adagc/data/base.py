"""Images by index, and the collection that brings images, splits and truth together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


@dataclass(frozen=True)
class Collection:
    """A data set ready for work: images, which rows are for what, and truth where it exists.

    `truth` and `areas` are for simulating labels, for oracle curves and for `evaluate`; nothing
    that trains or selects is ever handed a Collection.
    """

    images: SceneDataset
    classes: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]  # "train", "val", "test" -> rows of `images`
    truth: NDArray[np.bool_] | None = None  # (N, C)
    known: NDArray[np.bool_] | None = None  # (N,) images whose truth is known; None: all of them
    areas: NDArray[np.float32] | None = None  # (N, C) share of each image that a class covers
    description: str = ""
    notes: tuple[str, ...] = field(default=())  # what a reader of the report should know

    def has_truth(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows have clean labels; a row of zeros in `truth` may mean neither."""
        if self.truth is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.ones(len(rows), dtype=np.bool_) if self.known is None else self.known[rows]

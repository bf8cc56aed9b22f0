"""Images, the split of them, and truth where it exists, brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset
from adagc.labels import LabelTable


@dataclass(frozen=True)
class Collection:
    """A data set ready for work: images, which rows are for what, and what is known of them.

    `truth` and `areas` are for simulating labels, for oracle curves and for `evaluate`; nothing
    that trains or selects is ever handed a Collection.
    """

    images: SceneDataset
    classes: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]  # "train", "val", "test" -> rows of `images`
    truth: NDArray[np.bool_] | None = None  # (N, C)
    known: NDArray[np.bool_] | None = None  # (N,) images whose truth is known; None: all of them
    areas: NDArray[np.float32] | None = None  # (N, C) share of each image that a class covers
    # Labels that came with the images, matched to them (N, C); a run may be given others.
    observed: LabelTable | None = None
    observed_values: NDArray[np.int8] | None = None
    description: str = ""
    notes: tuple[str, ...] = field(default=())  # what a reader of the report should know

    def __post_init__(self) -> None:
        shape = None if self.observed_values is None else self.observed_values.shape
        if shape != (None if self.observed is None else (len(self.images), len(self.classes))):
            raise ValueError(
                "observed labels and their values go together: use adagc.datasets.collect"
            )

    def has_truth(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows have clean labels; a row of zeros in `truth` may mean neither."""
        if self.truth is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.ones(len(rows), dtype=np.bool_) if self.known is None else self.known[rows]

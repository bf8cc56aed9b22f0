"""One data set in memory: images, splits, and clean labels where they exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset
from adagc.labels import LabelTable


@dataclass(frozen=True, repr=False)
class Collection:
    """A data set that is ready to be used: images, their splits and their labels.

    `adagc.collect` makes one of arrays, `adagc.open_collection` of files.

    `truth` and `areas` are used to simulate labels, for oracle curves and by `evaluate`. Code that
    trains or selects models is never given a Collection, so that it cannot see clean labels.

    Example:
        >>> from adagc import Collection, open_collection
        >>> scenes: Collection = open_collection("synthetic", scenes=8, size=16)
        >>> scenes
        Collection(20 images of 14 x 16 x 16, 19 classes; train 8, val 4, test 8; clean labels)
        >>> scenes.images.gather(scenes.splits["test"]).shape
        (8, 14, 16, 16)
    """

    images: SceneDataset
    classes: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]  # "train", "val", "test" -> rows of `images`
    truth: NDArray[np.bool_] | None = None  # (N, C) clean labels
    known: NDArray[np.bool_] | None = None  # (N,) images with clean labels; None: all of them
    areas: NDArray[np.float32] | None = None  # (N, C) share of each image that a class covers
    # Labels that came with the images: the table, and its values in the order of the images
    # (N, C). A run may be given other labels.
    observed: LabelTable | None = None
    observed_values: NDArray[np.int8] | None = None
    # Names of images that exist but were left out, such as unreadable files: label files may still
    # name them.
    left_out: tuple[str, ...] = ()
    description: str = ""
    notes: tuple[str, ...] = field(default=())  # remarks for the report

    def __post_init__(self) -> None:
        shape = None if self.observed_values is None else self.observed_values.shape
        if shape != (None if self.observed is None else (len(self.images), len(self.classes))):
            raise ValueError(
                "observed labels and their values go together: use adagc.datasets.collect"
            )

    def __repr__(self) -> str:
        form = " x ".join(map(str, self.images.shape))
        parts = ", ".join(f"{name} {len(rows)}" for name, rows in self.splits.items())
        observed = "observed labels" if self.observed is not None else ""
        clean = "clean labels" if self.truth is not None else ""
        told = " and ".join(filter(None, (observed, clean))) or "no labels"
        unit = "images" if self.images.is_image else "rows"
        return (
            f"Collection({len(self.images)} {unit} of {form}, {len(self.classes)} classes; {parts};"
            f" {told})"
        )

    def has_truth(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows have clean labels, (len(rows),).

        `truth` alone does not say this: a row of zeros may be an image without any class or an
        image whose clean labels are unknown.
        """
        if self.truth is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.ones(len(rows), dtype=np.bool_) if self.known is None else self.known[rows]

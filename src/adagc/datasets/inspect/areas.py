"""What `adagc inspect` says about the areas of classes, where a data set knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Areas:
    """How much of the images classes cover; shares are between 0 and 1."""

    mean: dict[str, float | None]  # class -> mean share of the images that it is a label of
    largest: dict[str, int]  # class -> number of images of which it covers most
    dominant: float  # mean share of an image that its largest class covers
    hidden: float  # share of the images that show a class which is too small to be a label


def summarise_areas(
    areas: NDArray[np.float32], truth: NDArray[np.bool_], classes: Sequence[str]
) -> Areas:
    """Summarise areas (N, C) and the labels (N, C) of the same images."""
    count = truth.sum(axis=0)
    total = np.where(truth, areas, 0).sum(axis=0, dtype=np.float64)
    largest = np.bincount((areas * truth).argmax(axis=1)[truth.any(axis=1)], minlength=len(classes))
    return Areas(
        mean={
            name: float(total[c] / count[c]) if count[c] else None for c, name in enumerate(classes)
        },
        largest=dict(zip(classes, largest.tolist(), strict=True)),
        dominant=float(areas.max(axis=1).mean()),
        hidden=float(((areas > 0) & ~truth).any(axis=1).mean()),
    )

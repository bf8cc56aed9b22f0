"""What `adagc inspect` says about how observed labels came about, where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.labels import LabelTable, locate, match
from adagc.labels.drawing import distance_from_random, dominance
from adagc.metrics.shares import Estimate

FEW = 20  # images with a choice of classes, below which nothing is said
HALF = 0.5  # an interval of λ that lies above it is of dominant labels, one below it of random ones


@dataclass(frozen=True)
class Origin:
    """How labels were chosen among the classes that are there, on images with several of them."""

    images: int  # with one observed label, of a class that is there, and another class
    dominance: Estimate | None  # λ: 0 any class by chance, 1 the class that covers most
    distance: Estimate  # from classes named by chance, as a share of labels
    by_chance: float  # what that distance is for labels that really are named by chance, at most

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader is told."""
        found = [self._of_classes()]
        if self.dominance is not None:
            found.insert(0, self._of_areas(self.dominance))
        return tuple(found)

    def _of_areas(self, share: Estimate) -> str:
        if share.low > HALF:
            kind = "those of dominant classes"
        elif share.high < HALF:
            kind = "random ones"
        else:
            kind = "neither random ones nor those of dominant classes alone"
        return (
            f"labels look like {kind}: it is as if {share.value:.0%} of them ({share.low:.0%} to"
            f" {share.high:.0%}) named the class that covers most of the image, and the others any"
            f" class that is there ({self.images:,} images with several classes)"
        )

    def _of_classes(self) -> str:
        value, bound = f"{self.distance.value:.1%}", f"{self.by_chance:.1%}"
        if self.distance.value <= self.by_chance:
            return (
                "no class is named more often than chance would: the counts of classes differ in"
                f" {value} of the labels from random ones, which differ by up to {bound}"
            )
        return (
            "some classes are named more often than chance would: the counts of classes differ in"
            f" {value} of the labels from random ones, which differ by up to {bound}"
        )


def origin(
    observed: LabelTable,
    clean: LabelTable,
    names: Sequence[str],
    areas: NDArray[np.float32] | None = None,
) -> Origin | None:
    """Compare single observed labels with all classes that are there; None if too few tell.

    Labels that contradict the truth, and images with several observed labels, are left out.

    Args:
        observed: Observed labels.
        clean: Complete labels of some images.
        names: Names of the images.
        areas: (len(clean), C) how much of each of these images each class covers.
    """
    shared = [name for name in clean.classes if name in observed.classes]
    column = np.array([clean.classes.index(name) for name in shared], dtype=np.int64)
    if len(shared) < 2:
        return None
    place = locate(clean, names, unknown="ignore")
    seen = match(observed.select(shared), names, unknown="ignore")[place >= 0] > 0
    place = place[place >= 0]
    there = clean.positive[np.ix_(place, column)]
    chosen = seen.argmax(axis=1)
    right = (seen.sum(axis=1) == 1) & there[np.arange(len(there)), chosen]
    rows = np.flatnonzero(right & (there.sum(axis=1) > 1))
    if len(rows) < FEW:
        return None
    share = None
    if areas is not None:
        covered = areas[np.ix_(place[rows], column)].astype(np.float64)
        share = dominance(chosen[rows], there[rows], covered)
    distance, by_chance = distance_from_random(chosen[rows], there[rows])
    return Origin(len(rows), share, distance, by_chance)

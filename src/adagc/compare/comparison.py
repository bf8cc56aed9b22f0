"""The rows of a table compared: who leads, by how much, and what a row gains over baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from adagc.compare.bootstrap import Resampled
from adagc.compare.design import Design
from adagc.compare.intervals import Difference, Floats, Uncertainty, stand


class Comparison:
    """Differences between rows that cover the choice of test images and of seeds.

    Args:
        drawn: Scores of all runs, on all test images and on resamples of them.
        candidates: The rows of which one may lead; the others are only compared with it.
    """

    def __init__(self, drawn: Resampled, candidates: Sequence[str]) -> None:
        self._labels = list(drawn.plain)
        self._images = drawn.images
        seeds = sorted({seed for runs in drawn.plain.values() for seed in runs})
        present = np.array([[seed in drawn.plain[row] for seed in seeds] for row in self._labels])
        self._design = Design(present)
        cells = [
            (self._labels[row], seeds[column])
            for row, column in zip(*present.nonzero(), strict=True)
        ]
        plain = np.array([drawn.plain[label][seed] for label, seed in cells])
        resampled = np.stack([drawn.drawn[label][seed] for label, seed in cells], axis=1)
        # A resample without a positive of any class has no value.
        resampled = resampled[~np.isnan(resampled).any(axis=1)]
        self._means = self._design.methods(plain)
        self._errors = Uncertainty(
            images=_variance_of_differences(self._design.methods(resampled)),
            seeds=self._design.variance(plain),
            image_degrees=max(1, min(drawn.images, len(resampled)) - 1),
            seed_degrees=self._design.degrees,
        )
        self.candidates = self._together(candidates)
        self.apart = tuple(label for label in candidates if label not in self.candidates)
        self._stand()

    @property
    def covers_seeds(self) -> bool:
        """Whether the runs tell how much a difference depends on the seeds."""
        return self._design.degrees > 0

    def difference(self, first: str, second: str, comparisons: int = 1) -> Difference | None:
        """First minus second row; None if no seeds connect them.

        Args:
            first: Label of a row.
            second: Label of another row.
            comparisons: How many such differences are looked at together: their intervals all cover
                what they should with a probability of 95 %.
        """
        i, j = self._labels.index(first), self._labels.index(second)
        if not self._design.connected[i, j]:
            return None
        errors = self._errors
        half = float(errors.halves(errors.images[i, j], errors.seeds[i, j], comparisons))
        return self._made(i, j, half, comparisons)

    def gains(self, label: str, baselines: Sequence[str]) -> dict[str, Difference]:
        """What a row gains over each of these, by their labels; rows without common seeds left out.

        For the leader the intervals are those with which it was compared with all candidates.
        """
        others = [other for other in baselines if other in self._labels and other != label]
        if label == self.leader:
            return {other: self.gaps[other] for other in others if other in self.gaps}
        found = {other: self.difference(label, other, len(others)) for other in others}
        return {other: gain for other, gain in found.items() if gain is not None}

    def _together(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """The candidates that seeds connect; of several such groups the largest."""
        groups: dict[bytes, list[str]] = {}
        for label in candidates:
            key = self._design.connected[self._labels.index(label)].tobytes()
            groups.setdefault(key, []).append(label)
        return tuple(sorted(groups.values(), key=len, reverse=True)[0])

    def _stand(self) -> None:
        """Find the leader and the differences of all other candidates from it."""
        rows = [self._labels.index(label) for label in self.candidates]
        pairs = np.ix_(rows, rows)
        errors = self._errors
        standing = stand(
            self._means[rows],
            Uncertainty(
                errors.images[pairs], errors.seeds[pairs], errors.image_degrees, errors.seed_degrees
            ),
        )
        place = int(standing.leader)
        self.leader = self.candidates[place]
        self.gaps: Mapping[str, Difference] = {
            label: self._made(
                rows[place], rows[i], float(standing.halves[i]), int(standing.comparisons[i])
            )
            for i, label in enumerate(self.candidates)
            if i != place
        }

    def _made(self, i: int, j: int, half: float, comparisons: int) -> Difference:
        mean = float(self._means[i] - self._means[j])
        common = int((self._design.present[i] & self._design.present[j]).sum())
        return Difference(
            mean, mean - half, mean + half, common, self._images, comparisons, self.covers_seeds
        )


def _variance_of_differences(drawn: Floats) -> Floats:
    """(methods, methods) from (resamples, methods)."""
    if len(drawn) < 2:
        return np.zeros((drawn.shape[1], drawn.shape[1]))
    covariance = np.atleast_2d(np.cov(drawn, rowvar=False))
    scale = np.diag(covariance)
    return np.maximum(scale[:, None] + scale - 2 * covariance, 0)

"""How sure a difference of mean average precision is, over other test images and other seeds.

Every row of a table is judged with the same drawn images and compared seed by seed, so that what
makes an image hard or a seed lucky cancels in the difference. Images are hundreds and are drawn
anew (bootstrap). Seeds are two or three: drawing those again would call every second difference
between equal methods clear, so their luck is drawn from Student's t.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.bench.results import Choice, Result
from adagc.compare.tables import network_of
from adagc.errors import AdagcError
from adagc.types import NetworkRole

_RESAMPLES = (200, 1000)  # at least and at most
_DRAWN = 20_000_000  # images over all resamples: beyond, more draws cost minutes and say little
_LUCKS = 20_000  # draws of Student's t, whose tails are long when seeds are few
_CHUNK = 1 << 17  # weights at a time: they and their sorted copy stay in the cache


@dataclass(frozen=True)
class Difference:
    """First minus second, as a fraction, with its 95 % interval."""

    mean: float
    low: float
    high: float
    seeds: int  # that both have
    images: int

    @property
    def half(self) -> float:
        """Half the interval, what stands behind ±."""
        return (self.high - self.low) / 2

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Resampled:
    """The mean average precision of every run under the same draws of test images."""

    images: int
    plain: Mapping[str, Mapping[int, float]]  # label, seed -> with every image once
    drawn: Mapping[str, Mapping[int, NDArray[np.float64]]]  # label, seed -> (resamples,)
    seed: int = 0

    def difference(self, first: str, second: str) -> Difference | None:
        """Of two rows over the seeds that both have; None if they share none."""
        shared = sorted(self.plain[first].keys() & self.plain[second].keys())
        if not shared:
            return None
        plain = [self.plain[first][seed] - self.plain[second][seed] for seed in shared]
        gaps = np.stack([self.drawn[first][seed] - self.drawn[second][seed] for seed in shared])
        means = gaps.mean(axis=0)
        if len(shared) > 1:
            luck = draw_luck(len(shared), len(means), self.seed)
            means = means + luck * np.std(plain, ddof=1) / np.sqrt(len(shared))
        low, high = np.nanpercentile(means, [2.5, 97.5])
        return Difference(float(np.mean(plain)), float(low), float(high), len(shared), self.images)


def resample(
    rows: Mapping[str, Sequence[Result]],
    role: NetworkRole,
    choice: Choice,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Resampled:
    """Judge all runs of these rows with the same draws of test images.

    Without a number of resamples there are 1,000 of them, down to 200 of large test sets.
    """
    truth = _shared_truth([run for runs in rows.values() for run in runs])
    resamples = resamples or int(np.clip(_DRAWN // len(truth), *_RESAMPLES))
    plain: dict[str, dict[int, float]] = {label: {} for label in rows}
    drawn: dict[str, dict[int, NDArray[np.float64]]] = {label: {} for label in rows}
    for label, runs in rows.items():
        for run in runs:
            name = network_of(run, role) or ""
            ranked = Ranked(truth, run.predictions(name, choice))
            plain[label][run.seed] = once = float(
                ranked.mean(np.ones((1, len(truth)), np.int32))[0]
            )
            _check_scores(run, name, choice, once)
            weights = draw_images(len(truth), resamples, seed)
            drawn[label][run.seed] = np.concatenate([ranked.mean(some) for some in weights])
    return Resampled(len(truth), plain, drawn, seed)


def draw_images(
    images: int, resamples: int, seed: int, chunk: int = _CHUNK
) -> Iterator[NDArray[np.int32]]:
    """How often every resample has each image, (some resamples, images) at a time.

    Drawn anew for every run instead of being kept: a hundred thousand test images would fill the
    memory. The size of the chunks does not change the draws.
    """
    rng = np.random.default_rng([seed, 0])
    step = max(chunk // images, 1)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        chosen = rng.integers(images, size=(count, images))
        chosen += np.arange(count)[:, None] * images
        weights = np.bincount(chosen.ravel(), minlength=count * images)
        yield weights.reshape(count, images).astype(np.int32)


def draw_luck(seeds: int, resamples: int, seed: int) -> NDArray[np.float64]:
    """(some, resamples) of what a mean over so few seeds may be off, in its standard errors."""
    rng = np.random.default_rng([seed, 1])
    some = rng.standard_t(seeds - 1, size=(-(-_LUCKS // (2 * resamples)), resamples))
    return np.concatenate([some, -some])  # "A against B" mirrors "B against A"


class Ranked:
    """The predictions of a run, sorted once, to be judged under many weights of the images.

    The average precision of a class is the mean over its positives of the precision among all
    images that score at least as high. With weights w, for a positive i:
    sum of w over positives at least as high / sum of w over images at least as high, times w_i.

    Args:
        truth: (N, C) of booleans.
        scores: (N, C).
    """

    def __init__(self, truth: NDArray[np.bool_], scores: NDArray[Any]) -> None:
        self._classes = [
            _RankedClass(member, column)
            for member, column in zip(truth.T, scores.T, strict=True)
            if member.any()
        ]

    def mean(self, weights: NDArray[np.int32]) -> NDArray[np.float64]:
        """(R,) mean average precision over the classes that have a positive in the resample.

        Args:
            weights: (R, N). NaN comes out where no class has a positive.
        """
        total = np.zeros(len(weights))
        counted = np.zeros(len(weights))
        for ranked in self._classes:
            area, positives = ranked.area(weights)
            there = positives > 0
            total += np.divide(area, positives, out=np.zeros_like(total), where=there)
            counted += there
        return np.divide(total, counted, out=np.full_like(total, np.nan), where=counted > 0)


class _RankedClass:
    """Images of one class from the highest score down, and where a group of equal scores ends."""

    def __init__(self, member: NDArray[np.bool_], column: NDArray[Any]) -> None:
        order = np.argsort(-column, kind="stable")
        ranked = column[order]
        hits = np.flatnonzero(member[order])
        # As in `adagc.metrics`: ties count all of their group, so every image is at its end.
        ends = np.searchsorted(-ranked, -ranked[hits], side="right")
        self._order = order[: ends[-1]]  # below the last positive nothing counts
        self._hits = order[hits]
        self._ends = ends - 1
        self._hit_ends = np.searchsorted(hits, ends) - 1

    def area(self, weights: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Precision summed over the drawn positives, and how many they are; both (R,)."""
        gained = weights.take(self._hits, axis=1)
        hits = _cumulated(gained)
        shown = _cumulated(weights.take(self._order, axis=1)).take(self._ends, axis=1)
        # Nothing is shown before the first drawn image; nothing is gained there either.
        precision = hits.take(self._hit_ends, axis=1) / np.maximum(shown, 1)
        return np.einsum("rp,rp->r", gained, precision), hits[:, -1]


def _cumulated(counts: NDArray[np.int32]) -> NDArray[np.int32]:
    # Whole numbers along contiguous memory: several times faster than floats or down columns.
    return np.cumsum(counts, axis=1, dtype=np.int32)


def _shared_truth(runs: Sequence[Result]) -> NDArray[np.bool_]:
    """The clean labels of the test images, which must be those of every run."""
    first = runs[0].truth()
    for run in runs[1:]:
        if not np.array_equal(run.truth(), first):
            raise AdagcError(
                f"{runs[0].run.folder} and {run.run.folder} were not tested on the same images:"
                " compare runs of one split only (adagc evaluate tests them again)"
            )
    return first


def _check_scores(run: Result, network: str, choice: Choice, found: float) -> None:
    """Predictions and scores are two files, and a lead must not contradict the table."""
    scores = run.scores(network, choice)
    if scores is not None and abs(scores.mean_average_precision - found) > 1e-6:
        raise AdagcError(
            f"{run.run.folder} has predictions with another mAP ({found * 100:.2f}) than its scores"
            f" ({scores.mean_average_precision * 100:.2f}): run  adagc evaluate {run.run.folder}"
        )

"""Test images drawn anew, to see how much a comparison depends on which images were tested.

All rows of a table are scored on the same resampled images (paired bootstrap), so that the
difficulty of an image cancels in the difference of two rows. There are hundreds of test images,
which can be resampled. There are only a few seeds, which cannot: resampling two or three would call
every second difference between equal methods clear. What they make uncertain is estimated in
`adagc.compare.design`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.bench.results import Result
from adagc.errors import AdagcError
from adagc.training.views import View

# Smallest and largest number of resamples; they give a standard error to within 7 and 4 per cent.
_RESAMPLES = (100, 400)
# Images drawn in all resamples together; more would take minutes and change little.
_DRAWN = 10_000_000
_CHUNK = 1 << 17  # weights computed at a time; they and a sorted copy fit into the CPU cache


@dataclass(frozen=True)
class Resampled:
    """The mean average precision of every run on the same resamples of the test images."""

    images: int
    plain: Mapping[str, Mapping[int, float]]  # label, seed -> value on all test images
    drawn: Mapping[str, Mapping[int, NDArray[np.float64]]]  # label, seed -> (resamples,)


def resample(
    rows: Mapping[str, Sequence[Result]],
    view: View,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Resampled:
    """Compute the mean average precision of all runs on the same resamples of the test images.

    Args:
        rows: The finished runs of each row, by label.
        view: Which network of each run, after which epoch.
        resamples: Number of resamples; by default 400, and down to 100 for large test sets.
        seed: Seed of the random draws.

    Raises:
        AdagcError: If runs were tested on different images, or the predictions of a run do not
            belong to its scores.
    """
    truth = _shared_truth([run for runs in rows.values() for run in runs])
    resamples = resamples or int(np.clip(_DRAWN // len(truth), *_RESAMPLES))
    plain: dict[str, dict[int, float]] = {label: {} for label in rows}
    drawn: dict[str, dict[int, NDArray[np.float64]]] = {label: {} for label in rows}
    for label, runs in rows.items():
        for run in runs:
            name = view.of(run.networks) or ""
            ranked = Ranked(truth, run.predictions(name, view.choice))
            plain[label][run.seed] = once = float(
                ranked.mean(np.ones((1, len(truth)), np.int32))[0]
            )
            _check_scores(run, view, once)
            weights = draw_images(len(truth), resamples, seed)
            drawn[label][run.seed] = np.concatenate([ranked.mean(some) for some in weights])
    return Resampled(len(truth), plain, drawn)


def draw_images(
    images: int, resamples: int, seed: int, chunk: int = _CHUNK
) -> Iterator[NDArray[np.int32]]:
    """How often each resample contains each image, as (some resamples, images) arrays in turn.

    The numbers are drawn again for every run instead of being stored, because for a hundred
    thousand test images they would fill the memory. `chunk`, the number of entries per array, does
    not change the draws.
    """
    rng = np.random.default_rng([seed, 0])
    step = max(chunk // images, 1)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        chosen = rng.integers(images, size=(count, images))
        chosen += np.arange(count)[:, None] * images
        weights = np.bincount(chosen.ravel(), minlength=count * images)
        yield weights.reshape(count, images).astype(np.int32)


class Ranked:
    """The predictions of a run, sorted once, to compute average precision for many image weights.

    The average precision of a class is the mean over its positives of the precision among all
    images that score at least as high. With weights w, for a positive i:
    sum of w over positives at least as high / sum of w over images at least as high, times w_i.

    Args:
        truth: (N, C) bool clean labels.
        scores: (N, C) predictions, larger for more certain.
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
            weights: (R, N) how often each resample contains each image.

        Returns:
            One value per resample, NaN where no class has a positive.
        """
        total = np.zeros(len(weights))
        counted = np.zeros(len(weights))
        for ranked in self._classes:
            area, positives = ranked.area(weights)
            present = positives > 0
            total += np.divide(area, positives, out=np.zeros_like(total), where=present)
            counted += present
        return np.divide(total, counted, out=np.full_like(total, np.nan), where=counted > 0)


class _RankedClass:
    """The images sorted by their score for one class, and where groups of equal scores end."""

    def __init__(self, member: NDArray[np.bool_], column: NDArray[Any]) -> None:
        order = np.argsort(-column, kind="stable")
        ranked = column[order]
        hits = np.flatnonzero(member[order])
        # As in `adagc.metrics`, equal scores count together: each image is ranked at the end of its
        # group.
        ends = np.searchsorted(-ranked, -ranked[hits], side="right")
        self._order = order[: ends[-1]]  # images below the last positive have no effect
        self._hits = order[hits]
        self._ends = ends - 1
        self._hit_ends = np.searchsorted(hits, ends) - 1

    def area(self, weights: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(R,) sum of the precision at the drawn positives, and (R,) number of these positives."""
        gained = weights.take(self._hits, axis=1)
        hits = _cumulated(gained)
        shown = _cumulated(weights.take(self._order, axis=1)).take(self._ends, axis=1)
        # Where no image was drawn so far, no positive was either: 0 / 1 instead of 0 / 0.
        precision = hits.take(self._hit_ends, axis=1) / np.maximum(shown, 1)
        return np.einsum("rp,rp->r", gained, precision), hits[:, -1]


def _cumulated(counts: NDArray[np.int32]) -> NDArray[np.int32]:
    """(R, N) cumulative sums along each row."""
    # Integers along contiguous memory: several times faster than floats or sums down columns.
    return np.cumsum(counts, axis=1, dtype=np.int32)


def _shared_truth(runs: Sequence[Result]) -> NDArray[np.bool_]:
    """The clean labels of the test images; AdagcError if they are not the same for all runs."""
    first = runs[0].truth()
    for run in runs[1:]:
        if not np.array_equal(run.truth(), first):
            raise AdagcError(
                f"{runs[0].name} and {run.name} were not tested on the same images:"
                " compare runs of one split only (adagc evaluate tests them again)"
            )
    return first


def _check_scores(run: Result, view: View, value: float) -> None:
    """Raise AdagcError if the predictions of a run have another mAP than its file of scores.

    The table shows the scores and the recommendation is computed from the predictions; the two
    must not contradict each other.
    """
    scores = view.scores(run.networks)
    if scores is not None and abs(scores.mean_average_precision - value) > 1e-6:
        raise AdagcError(
            f"{run.name} has predictions with another mAP ({value * 100:.2f}) than its scores"
            f" ({scores.mean_average_precision * 100:.2f}): {run.remedy}"
        )

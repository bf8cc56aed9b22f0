"""How well the networks of finished runs explain the observed labels of their validation images."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.bench.results import Result
from adagc.choice import explained
from adagc.compare.bootstrap import Resampled, draw_images
from adagc.errors import AdagcError
from adagc.metrics.noisy import auc
from adagc.training import held_out
from adagc.training.views import View

Floats = NDArray[np.float64]
_RESAMPLES = 400  # as in a recommendation


@dataclass(frozen=True)
class Kept:
    """What one run has kept of one of its networks."""

    name: str  # of the run, for messages
    seed: int
    observed: NDArray[np.int8]  # (N, C) labels of the validation images
    values: Floats  # (N,) log-likelihood of each image's label, NaN where there is none
    auc: float  # noisy AUC


@dataclass(frozen=True)
class Fit:
    """How well one network of a row explains the observed labels: means over its runs."""

    likelihood: float  # tempered log-likelihood per label
    error: float | None  # its standard error over seeds; None for a single run
    auc: float  # noisy AUC, for comparison
    runs: int

    @classmethod
    def of(cls, kept: Sequence[Kept]) -> Fit:
        """The means over these runs."""
        means = [float(np.nanmean(one.values)) for one in kept]
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None
        areas = statistics.fmean(one.auc for one in kept)
        return cls(statistics.fmean(means), error, areas, len(means))


def read(runs: Iterable[Result], view: View) -> list[Kept]:
    """What these runs have kept of the network that a view shows.

    Runs that have no such network, or no observed validation label, are left out. Clean labels are
    not among the files that are read.

    Raises:
        AdagcError: If a run has kept no predictions, or they are damaged.
    """
    found = []
    for result in runs:
        history = result.run.history
        network = view.of(history[-1].roles) if history else None
        if network is None:
            continue
        held = held_out.of_network(result.run, network, view.choice)
        if (held.observed > 0).any():
            values = explained(held.probabilities, held.observed)
            area = auc(held.observed, held.probabilities)
            found.append(Kept(result.name, result.seed, held.observed, values, area))
    return found


def check_same(kept: Iterable[Kept]) -> None:
    """Raise AdagcError if runs have other validation images, or those of a seed other labels."""
    by_seed: dict[int, Kept] = {}
    first: Kept | None = None
    for one in kept:
        first = first or one
        twin = by_seed.setdefault(one.seed, one)
        same = one.observed.shape == first.observed.shape
        if not same or not np.array_equal(one.observed, twin.observed):
            other = twin if same else first
            raise AdagcError(
                f"{other.name} and {one.name} have other validation images or labels, so that they"
                " cannot be compared: choose between runs of one split and one label file"
            )


def resample(rows: Mapping[str, Sequence[Kept]], seed: int = 0) -> Resampled:
    """The mean log-likelihood of all runs, on all images and on the same resamples of them.

    Args:
        rows: The runs of each row, all of the same images.
        seed: Seed of the random draws.
    """
    images = len(next(one for kept in rows.values() for one in kept).values)

    def drawn(values: Floats) -> Floats:
        weights = draw_images(images, _RESAMPLES, seed)
        return np.concatenate([_means(values, some) for some in weights])

    return Resampled(
        images,
        {
            label: {one.seed: float(np.nanmean(one.values)) for one in kept}
            for label, kept in rows.items()
        },
        {label: {one.seed: drawn(one.values) for one in kept} for label, kept in rows.items()},
    )


def _means(values: Floats, weights: NDArray[np.int32]) -> Floats:
    """(R,) mean of the values that are known; NaN for a resample without any."""
    known = ~np.isnan(values)
    count = weights @ known.astype(np.float64)
    total = weights @ np.where(known, values, 0.0)
    return np.asarray(total / np.where(count > 0, count, np.nan))

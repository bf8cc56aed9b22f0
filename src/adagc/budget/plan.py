"""The runs that answer the question: both ways to label, on several shares of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.bench.jobs import Job, make_job
from adagc.bench.scenarios import Scenario
from adagc.datasets.collection import Collection
from adagc.errors import UsageError, check_range
from adagc.methods import FULL, outline

SHARES = (0.125, 0.25, 0.5, 1.0)
FEWEST = 8  # images with all labels that a run must have
# Few images are trained for more epochs, so that all runs make as many steps; up to so many times
# more, as every epoch has a validation of its own.
_LONGEST = 8


@dataclass(frozen=True)
class Plan:
    """The runs of one scenario."""

    scenario: Scenario
    method: str  # title of the method that learns from one label per image
    cost: float  # price of all labels of an image, in single labels
    cardinality: float  # labels per training image, as the clean labels have it
    measured: bool  # whether the price is that number, since nobody named another
    single: dict[float, list[Job]] = field(default_factory=dict)  # share of the images -> runs
    full: dict[float, list[Job]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[Job]:
        """All runs, those with fewer images first: they say early whether anything is wrong."""
        both = [*self.single.items(), *self.full.items()]
        return [job for _, jobs in sorted(both, key=lambda pair: pair[0]) for job in jobs]


def make_plan(
    scenario: Scenario,
    collection: Collection,
    out: Path,
    *,
    method: str,
    cost: float | None = None,
    shares: Sequence[float] = SHARES,
    seeds: Sequence[int] | None = None,
) -> Plan:
    """Plan runs with one label on each share of the training images, and with all labels.

    All labels are tried on as many images as the same price buys, and on all of them.

    Args:
        scenario: Data, labels and network.
        collection: Its data, opened; all training images need clean labels.
        out: Folder of runs.
        method: Title of the method that learns from one label per image.
        cost: Price of all labels of an image, in single labels, at least 1; None means the mean
            number of labels of a training image.
        shares: Shares of the training images, above 0 and at most 1.
        seeds: Seeds of the runs; None means those of the scenario.

    Raises:
        UsageError: If clean labels are missing, or a share is too small.
    """
    title = outline(method).title
    if "truth" in outline(title).needs:
        raise UsageError(
            f"{title} sees all labels, and the question is what one label is worth: name a method"
            " that learns from observed labels with --method"
        )
    if len(shares) < 2 or len(set(shares)) < len(shares):
        raise UsageError("--shares needs two different numbers or more: a curve has points")
    for share in shares:
        check_range("shares", share, 1e-6, 1)
    check_range("cost", cost, 1)
    truth = _training_truth(scenario, collection)
    cardinality = float(truth.sum(axis=1).mean())
    price = max(1.0, cardinality) if cost is None else cost
    fewest = int(min(shares) * len(truth) / price)
    if fewest < FEWEST:
        raise UsageError(
            f"--shares {min(shares):g} of {len(truth):,} images buys all labels of {fewest} images,"
            f" and a curve needs {FEWEST}: choose larger shares"
        )
    chosen = sorted(dict.fromkeys(scenario.seeds if seeds is None else seeds))

    def runs(name: str, share: float) -> list[Job]:
        epochs = scenario.config(chosen[0]).epochs
        more = round(epochs * min(_LONGEST, 1 / share))
        part = scenario.with_settings(share=share, epochs=more)
        label = f"{name}, {share:.3g} of the images"
        return [make_job(part, name, seed, out, label=label) for seed in chosen]

    bought = {round(share / price, 6) for share in shares} | {1.0}
    return Plan(
        scenario,
        title,
        price,
        cardinality,
        cost is None,
        {share: runs(title, share) for share in sorted(shares)},
        {share: runs(FULL, share) for share in sorted(bought)},
    )


def _training_truth(scenario: Scenario, collection: Collection) -> NDArray[np.bool_]:
    """(N, C) clean labels of the training images that have a label."""
    rows, test = (collection.splits.get(name, np.zeros(0, int)) for name in ("train", "test"))
    if collection.truth is None or not collection.has_truth(rows).all() or not len(test):
        raise UsageError(
            f"{scenario.name} has no clean labels of all training images and of test images, from"
            " which both ways to label are tried: give them in scenario.yaml (truth: FILE)"
        )
    truth = collection.truth[rows]
    return truth[truth.any(axis=1)]

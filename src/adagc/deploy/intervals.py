"""How far the test scores of a run depend on which images were tested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.compare.bootstrap import Ranked, draw_images
from adagc.errors import AdagcError
from adagc.training.runs import Run
from adagc.training.scoring import truth_of
from adagc.types import NetworkRole, with_role

_RESAMPLES = 400
_WIDTH = 1.96  # standard errors to either side: 95 % of a normal distribution


@dataclass(frozen=True)
class Interval:
    """The range in which a score lies for 95 % of sets of images like the one tested."""

    low: float
    high: float


def intervals(run: Run, *, seed: int = 0) -> dict[str, Interval]:
    """Those of the deployed network's mAP and mF1, by the key of the metric.

    Test images are drawn anew with replacement. Empty if the run has no test scores, or was tested
    by a version that kept no predictions.

    Args:
        run: A finished run.
        seed: Seed of the draws.
    """
    tested = run.scores
    name = None if tested is None else with_role(tested.networks, NetworkRole.DEPLOYED)
    if tested is None or name is None:
        return {}
    try:
        truth, found = truth_of(run), run.predictions.get(f"{name}-last")
    except AdagcError:
        return {}
    if found is None:
        return {}
    decided = found >= np.array(tested.thresholds, dtype=np.float32)
    ranked = Ranked(truth, found)
    every = np.ones((1, len(truth)), dtype=np.int32)
    precision, f1 = [ranked.mean(every)], [_mean_f1(truth, decided, every)]
    for weights in draw_images(len(truth), _RESAMPLES, seed):
        precision.append(ranked.mean(weights))
        f1.append(_mean_f1(truth, decided, weights))
    return {
        "mean_average_precision": _interval(np.concatenate(precision)),
        "mean_f1": _interval(np.concatenate(f1)),
    }


def _mean_f1(
    truth: NDArray[np.bool_], decided: NDArray[np.bool_], weights: NDArray[np.int32]
) -> NDArray[np.float64]:
    """(R,) mean over classes of 2 TP / (predicted + present), 0 where there is neither."""
    counts = weights.astype(np.float64)
    right = counts @ (truth & decided)
    both = counts @ truth.astype(np.float64) + counts @ decided.astype(np.float64)
    return np.asarray((2 * right / np.maximum(both, 1)).mean(axis=1))


def _interval(values: NDArray[np.float64]) -> Interval:
    """The interval around the first value, which is that of all images, from the others.

    Not between quantiles: images that are drawn twice are ranked beside themselves, so that the
    average precision of a resample is too high on average.
    """
    centre, reach = float(values[0]), _WIDTH * float(np.nanstd(values[1:]))
    return Interval(max(centre - reach, 0.0), min(centre + reach, 1.0))

"""Choosing between methods, options and epochs by how well they explain labels they have not seen.

No clean label is needed. Scores of any method can be normalised to a distribution over which label
was observed, and the method under which held-out labels are most probable explains them best.

The same comparison hints at how the labels came about: if a method that takes them for dominant
classes explains them better than one that takes them for random ones, that is probably what they
are (`compare` and `hint`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError
from adagc.metrics.noisy import tempered, tempered_each

TIE = 0.03  # differences below it say nothing: another seed changes as much
# An annotator of dominant classes has to explain labels better than a random one by this much
# before labels are called dominant. It separated all cases that were looked at, but thinly.
DOMINANT = 0.04
_LEVEL = 0.95  # of intervals


def likelihood(scores: ArrayLike, observed: ArrayLike) -> float:
    """Mean log-likelihood of held-out observed labels s if P(s = c) ∝ q_c^a.

    The exponent a is fitted on one half of the images and used for the other half, and the other
    way round, so that it does not matter how sharp or flat a method's scores are. In histories and
    for the option --select it is called "tempered".

    Args:
        scores: (N, C) probabilities, areas or other scores that are not negative, of images that
            were not trained on; rows need not sum to 1.
        observed: (N, C) labels of these images: +1 seen to be present, 0 not known, -1 seen to be
            absent.

    Example:
        >>> import numpy as np
        >>> observed = np.eye(4)[np.arange(40) % 4]
        >>> round(likelihood(np.ones((40, 4)), observed), 3)  # nothing is known: log 1/4
        -1.386
    """
    return tempered(observed, scores)


def explained(scores: ArrayLike, observed: ArrayLike) -> NDArray[np.float64]:
    """(N,) the log-likelihood of each image's label, of which `likelihood` is the mean.

    It is NaN for images without an observed label. The arguments are those of `likelihood`.
    """
    return tempered_each(observed, scores)


@dataclass(frozen=True)
class Difference:
    """How much better one explains the labels than another, per label, with a 95 % interval."""

    mean: float
    low: float
    high: float
    images: int  # number of images with a label
    seeds: int = 1  # number of runs of each; with one the interval covers the images only

    @property
    def half(self) -> float:
        """Half the width of the interval, printed after ±."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        """Printed as +0.05 ± 0.02; more digits than two would not be the same with another seed."""
        return f"{self.mean:+.2f} ± {self.half:.2f}".replace("-0.00", "+0.00")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def compare(first: ArrayLike, second: ArrayLike, observed: ArrayLike) -> Difference:
    """How much better the first scores explain the observed labels than the second.

    The interval covers which images were held out: the mean of the differences of single images
    and its standard error. It does not cover what another training would have changed.

    Args:
        first: (N, C) scores as for `likelihood`.
        second: (N, C) other scores of the same images.
        observed: (N, C) their observed labels, with two images or more that have one.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(40) % 4
        >>> observed = np.eye(4)[labels]
        >>> right = np.where(np.arange(40) % 3 > 0, labels, 0)  # two thirds, and some of the rest
        >>> print(compare(np.eye(4)[right] + 0.1, np.ones((40, 4)), observed))
        +0.48 ± 0.31
    """
    apart = explained(first, observed) - explained(second, observed)
    apart = apart[~np.isnan(apart)]
    if len(apart) < 2:
        raise DataError(
            f"held-out images with an observed label: {len(apart)}; to compare how well labels are"
            " explained takes 2 or more"
        )
    mean = float(apart.mean())
    error = float(apart.std(ddof=1)) / math.sqrt(len(apart))
    half = NormalDist().inv_cdf((1 + _LEVEL) / 2) * error
    return Difference(mean, mean - half, mean + half, len(apart))


def hint(
    difference: Difference,
    first: str = "an annotator of dominant classes",
    second: str = "one that draws at random",
) -> str:
    """Whether labels look like those of dominant classes or like random ones, in two sentences.

    Labels are called dominant if the difference is above `DOMINANT` and its interval above 0, and
    random if the interval does not reach `DOMINANT`; in between it is said to be uncertain.

    Args:
        difference: How much better an annotator that names what covers much of an image explains
            the labels than one that names any class that is present.
        first: What the first is called.
        second: What the second is called.
    """
    runs = f"{difference.seeds} runs of each" if difference.seeds > 1 else "one run of each"
    basis = (
        f"(log-likelihood per label {difference} for {first} against {second}; 95 % interval over"
        f" {difference.images:,} validation images, {runs})"
    )
    if difference.mean > DOMINANT:
        kind, sure = "those of dominant classes rather than random ones", difference.low > 0
    else:
        kind, sure = "random ones rather than those of dominant classes", difference.high < DOMINANT
    start = f"Labels look like {kind}" if sure else f"It is not certain, but labels may be {kind}"
    return f"{start} {basis}. This is a hint, not a test."


__all__ = ["DOMINANT", "TIE", "Difference", "compare", "explained", "hint", "likelihood"]

"""Intervals of differences from the leader, and which of them are clear.

The leader is the method with the highest mean, and the others are compared with it. Three things
would make such comparisons too confident, and each is taken care of:

- A difference is uncertain because of the test images and because of the seeds. Their variances
  V and W are estimated from very different numbers of degrees of freedom, f and g. The interval
  is the difference plus and minus

      sqrt( t(f)^2 V + t(g)^2 W ),

  which covers the true difference with at least the nominal probability, whatever the variances
  (Banerjee, Sankhya 22, 1960). It has its centre at the difference.
- Many methods are compared. They are compared in steps as by Holm (1979): those that are clearly
  behind the leader are put aside, and the rest is looked at again with a milder correction.
- The leader was not known beforehand: it is the luckiest of equals. Among r methods that are still
  in question it could have been any of them, so a step corrects for all r (r - 1) / 2 pairs and not
  for r - 1 comparisons. Holm's own numbers would call one of ten equal methods worse in 9 to 13 %
  of cases instead of 5 % (tests/compare/test_error_rates.py, which also tests what is used here).

At the last step two methods are left, and the level is 5 % without correction, which is right for
the question whether the first is better than the second (Gutmann and Maymin, Annals of Statistics
15, 1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.compare.distributions import t_quantile

Floats = NDArray[np.float64]
LEVEL = 0.05  # chance of at least one false claim; intervals cover with one minus this
_ROUNDING = 1e-12  # equal rows may differ by so much


@dataclass(frozen=True)
class Difference:
    """First row minus second row in mean average precision (0 to 1), with its 95 % interval."""

    mean: float
    low: float
    high: float
    seeds: int  # number of seeds that both rows have
    images: int  # number of test images
    comparisons: int = 1  # number of comparisons for which the interval is corrected
    covers_seeds: bool = True  # whether it covers the choice of seeds, not only of test images

    @property
    def half(self) -> float:
        """Half the width of the interval, printed after ±."""
        return (self.high - self.low) / 2

    @property
    def rests_on_seeds(self) -> bool:
        """Whether both rows have several seeds in common, so that one lucky run is not enough."""
        return self.covers_seeds and self.seeds > 1

    @property
    def is_clear(self) -> bool:
        """Whether 0 is outside the interval."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Uncertainty:
    """What is known of the errors of differences between methods."""

    images: Floats  # (..., methods, methods) variance due to the test images
    seeds: Floats  # (..., methods, methods) variance due to the seeds
    image_degrees: float  # degrees of freedom of `images`
    seed_degrees: float  # degrees of freedom of `seeds`; 0 if nothing is known about it

    def halves(self, images: Floats, seeds: Floats, comparisons: int) -> Floats:
        """Half the widths of intervals with these variances, corrected for some comparisons."""
        chance = LEVEL / comparisons
        squares = t_quantile(chance, self.image_degrees) ** 2 * images
        if self.seed_degrees:
            squares = squares + t_quantile(chance, self.seed_degrees) ** 2 * seeds
        return np.asarray(np.sqrt(squares))


@dataclass(frozen=True)
class Standing:
    """Every method compared with the leader."""

    leader: NDArray[np.int64]  # (...)
    gaps: Floats  # (..., methods) leader minus method
    halves: Floats  # (..., methods) half the widths of their intervals
    comparisons: NDArray[np.int64]  # (..., methods) number of comparisons these are corrected for
    clear: NDArray[np.bool_]  # (..., methods) whether the leader is clearly better


def stand(means: Floats, errors: Uncertainty) -> Standing:
    """Compare every method with the one that has the highest mean, in steps; see above.

    Args:
        means: (..., methods) means of the methods; leading axes are worlds of their own.
        errors: How uncertain their differences are.
    """
    count = means.shape[-1]
    leader = means.argmax(axis=-1)
    gaps = np.take_along_axis(means, leader[..., None], axis=-1) - means
    images, seeds = (
        np.take_along_axis(
            np.broadcast_to(values, (*means.shape, count)), leader[..., None, None], axis=-2
        )[..., 0, :]
        for values in (errors.images, errors.seeds)
    )
    # (sizes, ..., methods): the half widths when so many methods are in question, from 0 up.
    pairs = np.array([max(1, size * (size - 1) // 2) for size in range(count + 1)])
    by_size = np.stack([errors.halves(images, seeds, int(number)) for number in pairs])
    open_ = np.ones(means.shape, bool)
    halves, comparisons = np.zeros(means.shape), np.ones(means.shape, np.int64)
    for _ in range(count):
        size = open_.sum(axis=-1)
        now = np.take_along_axis(by_size, size[None, ..., None], axis=0)[0]
        halves = np.where(open_, now, halves)
        comparisons = np.where(open_, pairs[size][..., None], comparisons)
        behind = open_ & (gaps > halves + _ROUNDING)  # never the leader, whose gap is 0
        if not behind.any():
            break
        open_ &= ~behind
    return Standing(leader, gaps, halves, comparisons, ~open_)

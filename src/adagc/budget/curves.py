"""Learning curves of both ways to label, compared at the same price; functions of plain arrays.

Prices are counted in single labels. One label on N images costs N; all labels of M images cost
`cost` M. A curve has one value per seed at every number of images. Between these numbers it is
interpolated, linearly in the logarithm of the images; it is never continued beyond them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.compare.distributions import t_quantile

Floats = NDArray[np.float64]

_CHANCE = 0.05  # that an interval misses
_EDGE = 0.05  # by which share a number of images may lie outside a curve, since images are whole
_STEPS = 400  # of the search for where curves cross


@dataclass(frozen=True)
class Curve:
    """Scores over numbers of images: (P,) images, ascending, and (S, P) values, a row per seed."""

    images: Floats
    values: Floats

    def at(self, images: Floats) -> Floats:
        """(S, Q) values at these numbers of images; NaN outside the curve."""
        low, high = self.images[0] * (1 - _EDGE), self.images[-1] * (1 + _EDGE)
        inside = (images >= low) & (images <= high)
        places = np.log(np.where(inside, images, self.images[0]))
        found = np.array([np.interp(places, np.log(self.images), row) for row in self.values])
        return np.where(inside, found, np.nan)

    def reaching(self, value: float) -> float | None:
        """The number of images from which on the mean curve is at least this high.

        Where more images were worse, the best result with fewer counts. None if the whole curve is
        lower or higher, so that the number lies outside it.
        """
        mean = np.maximum.accumulate(self.values.mean(axis=0))
        if not mean[0] <= value <= mean[-1]:
            return None
        # `interp` wants ascending values: of equal ones the fewest images are kept.
        levels, first = np.unique(mean, return_index=True)
        return float(np.exp(np.interp(value, levels, np.log(self.images[first]))))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its 95 % interval; None with a single seed."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Floats) -> Estimate:
        """The mean of one value per seed, by Student's t."""
        count = len(values)
        if count < 2:
            return cls(float(values.mean()), None)
        spread = float(values.std(ddof=1)) / math.sqrt(count)
        return cls(float(values.mean()), t_quantile(_CHANCE, count - 1) * spread)

    @property
    def sure(self) -> bool:
        """Whether it is above or below zero for certain."""
        return self.half is not None and abs(self.mean) > self.half

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"mean": self.mean, "half_width": self.half}


@dataclass(frozen=True)
class Row:
    """What the same price buys."""

    images: int  # with one label each; also the price
    full_images: float  # with all labels, for the same price
    single: Estimate
    full: Estimate
    gain: Estimate  # single minus full, seed by seed
    worth: float | None  # images with all labels that are as good as the single labels

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "images": self.images,
            "full_images": self.full_images,
            "single": self.single.to_dict(),
            "full": self.full.to_dict(),
            "gain": self.gain.to_dict(),
            "worth": self.worth,
            "break_even_cost": None if self.worth is None else self.images / self.worth,
        }


@dataclass(frozen=True)
class Crossing:
    """Where the better way to label changes."""

    images: float  # price at which the mean curves cross
    low: float  # from here ...
    high: float  # ... to here the difference of the curves cannot be told from zero
    single_above: bool  # whether single labels are better above it

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "images": self.images,
            "interval": [self.low, self.high],
            "better_above": "one label" if self.single_above else "all labels",
        }


def rows(single: Curve, full: Curve, cost: float) -> list[Row]:
    """Both ways to label at every price that single labels were tried at."""
    bought = single.images / cost
    others = full.at(bought)
    found = []
    for place, images in enumerate(single.images):
        ours, theirs = single.values[:, place], others[:, place]
        if np.isnan(theirs).any():
            continue
        found.append(
            Row(
                round(images),
                float(bought[place]),
                Estimate.of(ours),
                Estimate.of(theirs),
                Estimate.of(ours - theirs),
                full.reaching(float(ours.mean())),
            )
        )
    return found


def crossings(single: Curve, full: Curve, cost: float) -> list[Crossing]:
    """Where the difference of the mean curves changes its sign, from low to high prices."""
    prices = np.geomspace(single.images[0], single.images[-1], _STEPS)
    gains = single.at(prices) - full.at(prices / cost)
    known = ~np.isnan(gains).any(axis=0)
    prices, gains = prices[known], gains[:, known]
    if len(prices) < 2:
        return []
    means = gains.mean(axis=0)
    unsure = np.array([not Estimate.of(column).sure for column in gains.T])
    found = []
    for i in np.flatnonzero((means[:-1] < 0) != (means[1:] < 0)):
        part = means[i] / (means[i] - means[i + 1])
        place = math.exp(np.log(prices[i]) * (1 - part) + np.log(prices[i + 1]) * part)
        low = high = int(i)
        while low > 0 and unsure[low - 1]:
            low -= 1
        while high + 1 < len(prices) and unsure[high + 1]:
            high += 1
        bounds = min(place, float(prices[low])), max(place, float(prices[high]))
        found.append(Crossing(place, *bounds, single_above=bool(means[i + 1] >= 0)))
    return found

"""Curves over epochs, read from histories: the mean over seeds and the range of seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adagc.paper.figures.frame import look
from adagc.training.records import EpochRecord
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

History = Sequence[EpochRecord]
Quantity = Callable[[EpochRecord], float | None]  # a fraction, or None if the epoch lacks it


@dataclass(frozen=True)
class Curve:
    """Values of a quantity in per cent, for S seeds and E epochs."""

    epochs: NDArray[np.int64]  # (E,) their numbers
    seeds: NDArray[np.float64]  # (S, E) the values

    @property
    def mean(self) -> NDArray[np.float64]:
        """(E,) the mean over seeds."""
        values: NDArray[np.float64] = self.seeds.mean(axis=0)
        return values


def curve(histories: Iterable[History], quantity: Quantity) -> Curve | None:
    """The values of a quantity at the epochs that all histories have.

    Histories without any value are left out. None if there is nothing to draw.
    """
    series = [_numbers(history, quantity) for history in histories]
    series = [numbers for numbers in series if numbers]
    if not series:
        return None
    epochs = sorted(set.intersection(*(set(numbers) for numbers in series)))
    if not epochs:
        return None
    values = [[100 * numbers[epoch] for epoch in epochs] for numbers in series]
    return Curve(np.array(epochs, np.int64), np.array(values, np.float64))


def _numbers(history: History, quantity: Quantity) -> dict[int, float]:
    """The values of a quantity by epoch, where there is one."""
    values = {line.epoch: quantity(line) for line in history}
    return {epoch: value for epoch, value in values.items() if value is not None}


def noisy_map(role: NetworkRole) -> Quantity:
    """Validation mAP of the network in this role on the observed labels."""

    def read(line: EpochRecord) -> float | None:
        scores = line.noisy_of(role)
        return None if scores is None else scores.mean_average_precision

    return read


def clean_map(role: NetworkRole) -> Quantity:
    """Validation mAP of the network in this role on clean labels."""

    def read(line: EpochRecord) -> float | None:
        scores = line.clean_of(role)
        return None if scores is None else scores.mean_average_precision

    return read


def starts(histories: Iterable[History]) -> list[int]:
    """The epochs after which calibration began in these histories (one per seed), sorted."""
    epochs = set()
    for history in histories:
        after = [line.status.get("triggered_after") for line in history]
        epochs |= {int(epoch) for epoch in after if epoch is not None}
    return sorted(epochs)


def draw_curve(
    ax: Axes, shown: Curve, index: int, of: int = 1, *, every_seed: bool = False
) -> Line2D:
    """Draw the mean over seeds as a line, in a band from the lowest to the highest seed.

    Args:
        ax: Axes to draw into.
        shown: The curve.
        index: Number of the line in these axes, which decides its colour, dashes and markers.
        of: How many lines there are, so that their markers are at different epochs.
        every_seed: Draw a thin line per seed instead of the band, to show how much a run varies
            between epochs.
    """
    style = look(index)
    if every_seed:
        for seed in shown.seeds:
            ax.plot(shown.epochs, seed, color=style["color"], linewidth=0.5, alpha=0.7)
    elif len(shown.seeds) > 1:
        low, high = shown.seeds.min(axis=0), shown.seeds.max(axis=0)
        ax.fill_between(shown.epochs, low, high, color=style["color"], alpha=0.15, linewidth=0)
    # About eight markers per line, at other epochs than those of the other lines.
    every = max(1, len(shown.epochs) // 8)
    start = index * every // max(of, 1)
    (line,) = ax.plot(shown.epochs, shown.mean, markevery=(start, every), markersize=3, **style)
    return line

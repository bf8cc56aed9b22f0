"""Numbers over epochs, read from histories: the mean over seeds and how far seeds go apart."""

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
Quantity = Callable[[EpochRecord], float | None]  # a fraction that an epoch may know


@dataclass(frozen=True)
class Curve:
    """A number in per cent, for every seed and epoch."""

    epochs: NDArray[np.int64]  # (E,)
    seeds: NDArray[np.float64]  # (S, E)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over seeds."""
        values: NDArray[np.float64] = self.seeds.mean(axis=0)
        return values


def curve(histories: Iterable[History], quantity: Quantity) -> Curve | None:
    """What histories say of a quantity, at the epochs that all of them have.

    Histories that never say it are left out; None if that leaves nothing.
    """
    found = [_numbers(history, quantity) for history in histories]
    found = [numbers for numbers in found if numbers]
    if not found:
        return None
    epochs = sorted(set.intersection(*(set(numbers) for numbers in found)))
    if not epochs:
        return None
    values = [[100 * numbers[epoch] for epoch in epochs] for numbers in found]
    return Curve(np.array(epochs, np.int64), np.array(values, np.float64))


def _numbers(history: History, quantity: Quantity) -> dict[int, float]:
    """Epoch to value."""
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
    """Epochs after which calibration began, one or more for several seeds."""
    found = set()
    for history in histories:
        after = [line.status.get("triggered_after") for line in history]
        found |= {int(epoch) for epoch in after if epoch is not None}
    return sorted(found)


def draw_curve(
    ax: Axes, shown: Curve, index: int, of: int = 1, *, every_seed: bool = False
) -> Line2D:
    """The mean over seeds as line number `index` of `of`, in a band from lowest to highest seed.

    With `every_seed` thin lines take the place of the band: they show how rough a run is.
    """
    style = look(index)
    if every_seed:
        for seed in shown.seeds:
            ax.plot(shown.epochs, seed, color=style["color"], linewidth=0.5, alpha=0.7)
    elif len(shown.seeds) > 1:
        low, high = shown.seeds.min(axis=0), shown.seeds.max(axis=0)
        ax.fill_between(shown.epochs, low, high, color=style["color"], alpha=0.15, linewidth=0)
    # A marker at every eighth of the line, not at the same epochs as on the other lines.
    every = max(1, len(shown.epochs) // 8)
    start = index * every // max(of, 1)
    (line,) = ax.plot(shown.epochs, shown.mean, markevery=(start, every), markersize=3, **style)
    return line

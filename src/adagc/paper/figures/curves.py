"""Numbers over epochs, read from histories: the mean over seeds and how far seeds go apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.paper.figures.frame import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

History = Sequence[Mapping[str, Any]]


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


def curve(histories: Iterable[History], *keys: str) -> Curve | None:
    """What histories say under these keys, at the epochs that all of them have.

    Histories that never say it are left out; None if that leaves nothing.
    """
    found = [_numbers(history, keys) for history in histories]
    found = [numbers for numbers in found if numbers]
    if not found:
        return None
    epochs = sorted(set.intersection(*(set(numbers) for numbers in found)))
    if not epochs:
        return None
    values = [[100 * numbers[epoch] for epoch in epochs] for numbers in found]
    return Curve(np.array(epochs, np.int64), np.array(values, np.float64))


def _numbers(history: History, keys: Sequence[str]) -> dict[int, float]:
    """Epoch to value."""
    found = {}
    for line in history:
        value: Any = line
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found[int(line["epoch"])] = float(value)
    return found


def starts(histories: Iterable[History]) -> list[int]:
    """Epochs after which calibration began, one or more for several seeds."""
    found = set()
    for history in histories:
        after = [line.get("status", {}).get("triggered_after") for line in history]
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

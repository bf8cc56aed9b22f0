"""The registry of metrics: what `score` computes, and how tables and reports show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError

Compute = Callable[[NDArray[np.bool_], NDArray[Any], NDArray[np.bool_]], float]


@dataclass(frozen=True)
class Metric:
    """A metric: how it is computed, and how tables show it.

    Args:
        key: Name of the metric in scores.json.
        heading: Name of the metric in tables.
        scale: Factor by which tables multiply the value: 100 for per cent.
        decimals: Number of decimals that tables print.
        better: Whether larger ("up") or smaller ("down") values are better.
        about: What the metric measures, in one sentence.
        compute: Function `compute(truth, probabilities, predicted)` of three (N, C) arrays: clean
            labels, predicted probabilities, and whether these reach the threshold. A result that
            is not finite counts as undefined and leaves a blank in tables. The seven built-in
            metrics have None, because `score` computes them together.
        unit: Unit of the number as tables print it, for example "%".
    """

    key: str
    heading: str
    scale: float
    decimals: int
    better: Literal["up", "down"]
    about: str = ""
    compute: Compute | None = None
    unit: str = ""

    @property
    def arrow(self) -> str:
        """An arrow that points to better values: ↑ or ↓."""
        return "↑" if self.better == "up" else "↓"

    def best(self, rows: Iterable[Mapping[str, Any]]) -> float | None:
        """The best value among entries of scores.json; None if no entry has this metric."""
        values = [scores[self.key] for scores in rows if self.key in scores]
        return (max if self.better == "up" else min)(values, default=None)

    def shown(self, scores: Mapping[str, Any]) -> str:
        """The value of an entry of scores.json as tables print it; blank where it has none."""
        return self.text(scores[self.key] * self.scale) if self.key in scores else ""

    def text(self, value: float | None, *, fewer: int = 0) -> str:
        """A scaled value as text, with `fewer` decimals than usual; empty for None."""
        return "" if value is None else f"{value:.{max(self.decimals - fewer, 0)}f}"


def _percent(key: str, heading: str, better: Literal["up", "down"], about: str) -> Metric:
    return Metric(key, heading, 100, 2, better, about, unit="%")


_SEVEN = (
    _percent(
        "mean_average_precision", "mAP", "up",
        "Average precision of each class, averaged over the classes.",
    ),
    Metric(
        "coverage", "Coverage", 1, 3, "down",
        "How far down the ranking of an image's classes its lowest true class is.", unit="labels",
    ),
    _percent(
        "ranking_loss", "Rank loss", "down",
        "Share of the pairs of a true and another class that are ranked the wrong way round.",
    ),
    _percent("overall_accuracy", "OA", "up", "Share of right decisions over images and classes."),
    _percent("mean_f1", "mF1", "up", "F1 of each class, averaged over the classes."),
    _percent("mean_precision", "mPrec", "up", "Precision of each class, averaged over classes."),
    _percent("mean_recall", "mRec", "up", "Recall of each class, averaged over the classes."),
)  # fmt: skip
_KNOWN = {metric.key: metric for metric in _SEVEN}
# Other keys in an entry of scores.json, which no metric may have.
_TAKEN = frozenset({"epoch", "per_class"})

METRICS: Mapping[str, Metric] = MappingProxyType(_KNOWN)
"""Every metric by its key, in the order of the tables' columns; the seven of the paper first."""


def register(metric: Metric) -> Metric:
    """Add a metric: from now on `score` computes it, and every table and report shows it.

    Runs that were tested before have a blank there until `adagc evaluate` tests them again. Call
    this at the top level of a module, so that worker processes, which import it again, do it too.

    Example:
        >>> added = register(
        ...     Metric(
        ...         "hamming_loss", "Hamming", 100, 2, "down", "Share of wrong decisions.",
        ...         lambda truth, probabilities, predicted: float((truth != predicted).mean()),
        ...     )
        ... )
        >>> [*METRICS][-1], METRICS["hamming_loss"].heading
        ('hamming_loss', 'Hamming')
        >>> unregister("hamming_loss")
    """
    if metric.compute is None:
        raise UsageError(
            f"the metric {metric.key} has no function that computes it: give compute=..."
        )
    if metric.key in _KNOWN or metric.key in _TAKEN or not metric.key.isidentifier():
        raise UsageError(
            f"a metric cannot be called {metric.key!r}, which is taken or not a plain name: choose"
            " another key"
        )
    taken = next((known for known in _KNOWN.values() if known.heading == metric.heading), None)
    if taken is not None:
        raise UsageError(
            f"the heading {metric.heading!r} is that of {taken.key}: choose another one"
        )
    _KNOWN[metric.key] = metric
    return metric


def unregister(key: str) -> None:
    """Remove a metric that was registered; the seven built-in ones cannot be removed."""
    if key not in _KNOWN or _KNOWN[key].compute is None:
        raise UsageError(f"no metric called {key!r} was registered")
    del _KNOWN[key]

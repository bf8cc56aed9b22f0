"""How good recovered labels are, where clean labels tell; decisions never see these numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECALL, PRECISION = 0.5, 0.8  # at which the other one is told
GRID = tuple(range(5, 100, 5))  # confidence in per cent at which the curve is told


@dataclass(frozen=True)
class Quality:
    """Recovered labels against clean ones; shares from 0 to 1, None where there are none."""

    images: int
    missing: int  # labels that are present and were not observed
    recovered: int
    precision: float | None  # share of recovered labels that are right
    recall: float | None  # share of missing labels that were recovered
    absent_right: float | None  # share of labels called absent that are
    unsure: int
    precision_at_recall: float | None  # if so much of the order were taken that recall is 0.5
    recall_at_precision: float | None  # the most of the order that has a precision of 0.8
    confidence: tuple[int, ...]  # per cent, GRID
    precisions: tuple[float | None, ...]  # of what is at least as probable
    recalls: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Quality:
        """The inverse of `to_dict`."""
        lists = ("confidence", "precisions", "recalls")
        given: dict[str, Any] = {name: values[name] for name in cls.__dataclass_fields__}
        return cls(**{**given, **{name: tuple(given[name]) for name in lists}})


def judge(
    presence: NDArray[np.float64],
    decision: NDArray[np.int8],
    observed: NDArray[Any],
    truth: NDArray[np.bool_],
) -> Quality:
    """Compare decisions about labels that were not observed with clean labels.

    Args:
        presence: (N, C) how probable each class is, by which labels are ordered.
        decision: (N, C) +1 present, 0 unsure, -1 absent.
        observed: (N, C) +1, 0, -1.
        truth: (N, C) clean labels.
    """
    unknown = observed == 0
    values, right, made = presence[unknown], truth[unknown], decision[unknown]
    missing = int(right.sum())
    taken, left = right[made > 0], right[made < 0]
    precisions, recalls = curve(values, right)
    enough = np.flatnonzero(recalls >= RECALL)
    good = np.flatnonzero(precisions >= PRECISION)
    at = [values >= confidence / 100 for confidence in GRID]
    return Quality(
        images=len(observed),
        missing=missing,
        recovered=len(taken),
        precision=_share(int(taken.sum()), len(taken)),
        recall=_share(int(taken.sum()), missing),
        absent_right=_share(int((~left).sum()), len(left)),
        unsure=int((made == 0).sum()),
        precision_at_recall=float(precisions[enough[0]]) if len(enough) else None,
        recall_at_precision=float(recalls[good[-1]]) if len(good) else None,
        confidence=GRID,
        precisions=tuple(_share(int(right[one].sum()), int(one.sum())) for one in at),
        recalls=tuple(_share(int(right[one].sum()), missing) for one in at),
    )


def curve(
    values: NDArray[Any], right: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall if the highest value is taken, the two highest, and so on.

    Equal values are taken together. Both are empty if nothing is right.
    """
    if not right.any():
        return np.zeros(0), np.zeros(0)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    hits = np.cumsum(right[order])
    ends = np.append(ordered[1:] != ordered[:-1], True)
    counts = np.arange(1, len(values) + 1)
    return (hits / counts)[ends], (hits / hits[-1])[ends]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None

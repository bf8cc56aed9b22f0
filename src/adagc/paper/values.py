"""Scores printed in the paper, to be shown beside ours; they were measured on the paper's data."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from adagc.compare.reference import Reference, Value
from adagc.errors import UsageError
from adagc.labels.statistics import FlipRates
from adagc.metrics import METRICS

_TABLE_ONE = Path(__file__).with_name("table_one.csv")
_FILE = Path(__file__).with_name("paper.csv")
_PRINTED = {
    "reben-random": "Table III (reBEN-Random)",
    "reben-dominant": "Table IV (reBEN-Dominant)",
    "aid-random": "Table V (AID-Random)",
    "aid-manual": "Table VI (AID-Manual)",
}


def flip_rates_of_paper(classes: Sequence[str], scheme: str) -> FlipRates | None:
    """What Table I of the paper prints of reBEN's training images; None for other classes.

    Args:
        classes: The classes, in the order of the result.
        scheme: "random" or "dominant".
    """
    with _TABLE_ONE.open(encoding="utf-8", newline="") as file:
        rows = {line["class"]: line for line in csv.DictReader(file)}
    if {*classes} != {*rows} - {"micro average", "macro average"} or scheme not in rows[
        "Urban fabric"
    ]:
        return None
    own = [rows[name] for name in classes]
    return FlipRates(
        beta=np.array([float(row[scheme]) for row in own]),
        support=np.array([int(row["support"]) for row in own], dtype=np.int64),
        micro=float(rows["micro average"][scheme]),
        macro=float(rows["macro average"][scheme]),
        observed=0,
        wrong=0,
        cardinality=np.zeros(len(own) + 1, dtype=np.int64),
    )


def known() -> list[str]:
    """Names of the scenarios for which the paper prints scores."""
    return list(_PRINTED)


def values(scenario: str) -> Reference:
    """The scores that the paper prints for one of its scenarios."""
    if scenario not in _PRINTED:
        raise UsageError(
            f"bench: paper: {scenario} is not a scenario of the paper: choose from"
            f" {', '.join(known())}, or leave this setting out"
        )
    return Reference(_PRINTED[scenario], _rows()[scenario])


@lru_cache(maxsize=1)
def _rows() -> dict[str, dict[str, dict[str, Value]]]:
    scores: dict[str, dict[str, dict[str, Value]]] = {}
    with _FILE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            scores.setdefault(line["scenario"], {})[line["method"]] = {
                key: Value(float(line[key]), float(line[f"{key}_deviation"]))
                for key in METRICS
                if key in line  # the paper does not have all of our metrics
            }
    return scores

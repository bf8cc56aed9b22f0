"""Scores printed in the paper, to be shown beside ours; they were measured on the paper's data."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path

from adagc.compare.reference import Reference, Value
from adagc.errors import UsageError
from adagc.metrics import METRICS

_FILE = Path(__file__).with_name("paper.csv")
_PRINTED = {
    "reben-random": "Table III (reBEN-Random)",
    "reben-dominant": "Table IV (reBEN-Dominant)",
    "aid-random": "Table V (AID-Random)",
    "aid-manual": "Table VI (AID-Manual)",
}


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

"""The values that the paper prints, to stand beside ours: theirs, and on their data."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from adagc.errors import UsageError
from adagc.types import METRICS

_FILE = Path(__file__).with_name("paper.csv")
_PRINTED = {
    "reben-random": "Table III (reBEN-Random)",
    "reben-dominant": "Table IV (reBEN-Dominant)",
    "aid-random": "Table V (AID-Random)",
    "aid-manual": "Table VI (AID-Manual)",
}


@dataclass(frozen=True)
class Value:
    """A mean over the paper's runs and its deviation, as printed: per cent, coverage a count."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Paper:
    """One table of the paper."""

    scenario: str
    source: str  # its number and name there
    rows: Mapping[str, Mapping[str, Value]]  # title of a method, metric


def known() -> list[str]:
    """Scenarios of the paper."""
    return list(_PRINTED)


def values(scenario: str) -> Paper:
    """What the paper prints for one of its scenarios."""
    if scenario not in _PRINTED:
        raise UsageError(f"the paper has no scenario {scenario!r}: it has {', '.join(known())}")
    return Paper(scenario, _PRINTED[scenario], _rows()[scenario])


@lru_cache(maxsize=1)
def _rows() -> dict[str, dict[str, dict[str, Value]]]:
    found: dict[str, dict[str, dict[str, Value]]] = {}
    with _FILE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            found.setdefault(line["scenario"], {})[line["method"]] = {
                metric.key: Value(float(line[metric.key]), float(line[f"{metric.key}_deviation"]))
                for metric in METRICS
            }
    return found

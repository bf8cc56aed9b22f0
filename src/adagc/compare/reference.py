"""Values printed in a paper, which tables show beside ours; they come from the paper's own runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """Mean and standard deviation over the paper's runs, as printed: per cent, coverage a count."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Reference:
    """One table of a paper."""

    source: str  # number and name of the table
    rows: Mapping[str, Mapping[str, Value]]  # title of a method -> metric -> value

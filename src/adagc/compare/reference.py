"""Values that somebody else printed, to stand beside ours: theirs, and on their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A mean over their runs and its deviation, as printed: per cent, coverage a count."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Reference:
    """One printed table."""

    source: str  # its number and name
    rows: Mapping[str, Mapping[str, Value]]  # title of a method -> metric -> value

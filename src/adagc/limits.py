"""The thresholds that a user asks for: one half, the estimates stored in a model, or a file.

A class is predicted from its threshold on. This module needs no torch, so that exported models can
use it too.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adagc.errors import UsageError, examples
from adagc.suggest import hint_or_list, require_path

HALF = 0.5
OPTION = (
    "From which probability on a class is predicted: estimated (those stored with the model, learnt"
    " from observed labels), half, or a file with a threshold per class (JSON, or CSV with the"
    " columns class,threshold)."
)


@dataclass(frozen=True)
class Thresholds:
    """The threshold of each class, and where they come from."""

    values: tuple[float, ...]  # in the order of the classes
    source: str  # "half", "estimated", or the name of the file

    @property
    def estimated(self) -> bool:
        """Whether they were learnt from observed labels, and are therefore uncertain."""
        return self.source == "estimated"

    @property
    def words(self) -> str:
        """Where they come from, for a sentence or the metadata of a file."""
        if self.source == "half":
            return "one half for every class"
        if self.estimated:
            return "estimated from observed labels"
        return f"given in {self.source}"


def choose(wanted: str | None, classes: Sequence[str], stored: Sequence[float]) -> Thresholds:
    """The thresholds that an option --thresholds asks for.

    Args:
        wanted: "half", "estimated", the path of a file, or None for what the model has.
        classes: All classes, in the order of the result.
        stored: The thresholds of the model.

    Raises:
        UsageError: If the model has no estimates, or the file cannot be used.
    """
    plain = set(stored) == {HALF}
    if wanted == "half" or (wanted is None and plain):
        return Thresholds((HALF,) * len(classes), "half")
    if wanted in (None, "estimated"):
        if plain:
            raise UsageError(
                "the model has no estimated thresholds, it was trained with --thresholds half: use"
                " --thresholds half, or give a file"
            )
        return Thresholds(tuple(map(float, stored)), "estimated")
    assert wanted is not None
    return Thresholds(read_thresholds(wanted, classes), Path(wanted).name)


def read_thresholds(path: Path | str, classes: Sequence[str]) -> tuple[float, ...]:
    """The thresholds in a file, in the order of the classes; UsageError if it cannot be used."""
    require_path("thresholds", path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        is_json = Path(path).suffix.lower() == ".json" or text.lstrip().startswith("{")
        given = _from_json(text) if is_json else _from_csv(text)
    except (ValueError, UnicodeDecodeError, IsADirectoryError) as error:
        raise UsageError(
            f"--thresholds {path} cannot be read ({error}): give JSON such as"
            ' {"water": 0.3}, or CSV with the columns class,threshold'
        ) from None
    unknown = [name for name in given if name not in classes]
    if unknown:
        near = hint_or_list(unknown[0], list(classes), "classes")
        raise UsageError(f"--thresholds {path} names the class {unknown[0]!r}{near}")
    missing = [name for name in classes if name not in given]
    if missing:
        raise UsageError(f"--thresholds {path} lacks {examples(missing)}: add them")
    for name, value in given.items():
        if not (math.isfinite(value) and 0 <= value <= 1):
            raise UsageError(f"--thresholds {path}: {value} for {name} is no probability")
    return tuple(given[name] for name in classes)


def _from_json(text: str) -> dict[str, float]:
    found: Any = json.loads(text)
    # Files that name other things too have them under this key, as model.json has.
    if isinstance(found, Mapping) and isinstance(found.get("thresholds"), Mapping):
        found = found["thresholds"]
    if not isinstance(found, Mapping):
        raise ValueError("it does not name classes")
    return {str(name): float(value) for name, value in found.items()}


def _from_csv(text: str) -> dict[str, float]:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if not {"class", "threshold"} <= set(header):
        raise ValueError("it has no columns class and threshold")
    name, value = header.index("class"), header.index("threshold")
    found: dict[str, float] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) <= max(name, value):
            raise ValueError(f"line {number} is too short")
        if row[name].strip() in found:
            raise ValueError(f"line {number} names {row[name].strip()!r} again")
        found[row[name].strip()] = float(row[value])
    return found

"""From which probability on a class counts as predicted: the model's own numbers, or others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, UsageError, examples
from adagc.prediction.models import Model
from adagc.suggest import hint

_HALF = 0.5


def thresholds_of(model: Model, wanted: str) -> NDArray[np.float32]:
    """(C,) thresholds in the order of the model's classes.

    Args:
        model: The model, which stores those that were estimated when it was trained.
        wanted: "estimated" for these, "half" for one half, or a file: CSV with the columns
            class,threshold, or a JSON object of numbers by class. A class that is not in the file
            keeps the threshold of the model.
    """
    own = np.asarray(model.thresholds, dtype=np.float32)
    if wanted == "estimated":
        return own
    if wanted == "half":
        return np.full_like(own, _HALF)
    path = Path(wanted)
    if not path.is_file():
        raise UsageError(
            f"--thresholds {wanted} is neither half nor estimated, and there is no such file"
        )
    limits = own.copy()
    for name, value in _read(path).items():
        if name not in model.classes:
            near = hint(name, model.classes) or f": it has {examples(model.classes, 5)}"
            raise DataError(f"{path}: the model has no class {name!r}{near}")
        if not 0 <= value <= 1:  # also false for NaN
            raise DataError(f"{path}: the threshold of {name} is {value}, not from 0 to 1")
        limits[model.classes.index(name)] = value
    return limits


def _read(path: Path) -> dict[str, float]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            return {str(name): float(value) for name, value in json.loads(text).items()}
        rows = list(csv.DictReader(text.splitlines()))
        return {row["class"]: float(row["threshold"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: cannot be read as thresholds ({error}): give a CSV file with the columns"
            " class,threshold, or a JSON object"
        ) from error

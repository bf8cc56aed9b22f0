"""Selection rates: how often a class is written down where it is there, relative to the others.

A file of them is JSON, as `adagc annotate --report` writes it beside its report:

    {"format": 1, "selection": {"water": 1.3, "trees": 0.8}, "images": 412}
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adagc.atomic import write_json
from adagc.errors import UsageError, examples

FORMAT = 1
WIDEST = 100.0  # largest ratio of two rates: more is a mistake, or a class that was never wanted


@dataclass(frozen=True)
class Selection:
    """Selection rates of classes.

    Attributes:
        rates: The rate of each class; only their ratios count.
        images: Number of images, with known truth, from which they were measured.
    """

    rates: dict[str, float]
    images: int

    def of(self, classes: Sequence[str], source: str = "the selection rates") -> list[float]:
        """The rates of these classes in their order; UsageError if one has none."""
        missing = [name for name in classes if name not in self.rates]
        if missing:
            raise UsageError(
                f"{source} has no rate of {examples(missing)}: measure the labels of these classes"
            )
        return [self.rates[name] for name in classes]


def write_selection(selection: Selection, path: Path) -> None:
    """Write rates to a file that `read_selection` reads."""
    rates = {name: round(rate, 4) for name, rate in selection.rates.items()}
    write_json(path, {"format": FORMAT, "selection": rates, "images": selection.images})


def read_selection(path: Path) -> Selection:
    """The rates in a file; UsageError if there are none that can be used."""
    place = f"--selection {path}"
    remedy = "give the file that  adagc annotate --report  has written with --truth"
    if not path.is_file():
        raise UsageError(f"{place}: there is no such file; {remedy}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        number, rates = int(values["format"]), dict(values["selection"])
        images = int(values.get("images", 0))
        found = {str(name): float(rate) for name, rate in rates.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{place} holds no selection rates; {remedy}") from None
    if number > FORMAT:
        raise UsageError(f"{place} was written by a newer version of adagc: update adagc")
    bad = [name for name, rate in found.items() if not (math.isfinite(rate) and rate > 0)]
    if bad or not found:
        raise UsageError(f"{place}: the rate of {bad[0] if bad else 'every class'} must be above 0")
    if max(found.values()) > WIDEST * min(found.values()):
        raise UsageError(
            f"{place}: the rates differ by more than a factor of {WIDEST:g}, which no annotator"
            " does; measure them on more images"
        )
    return Selection(found, images)

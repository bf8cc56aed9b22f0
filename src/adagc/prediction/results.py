"""Results as rows: names, probabilities and decisions, and where on earth each window is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.limits import Thresholds
from adagc.prediction.inputs import Opened
from adagc.prediction.scenes import SceneWindows
from adagc.prediction.work import Result
from adagc.tables import Table

PREFIX = "p_"  # of the columns with probabilities, so that no class is taken for another column
JOINT = ";"  # between the classes of a row, as in label files


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """Probabilities of all rows that have data, and what is decided by them."""

    classes: tuple[str, ...]
    thresholds: NDArray[np.float32]  # (C,)
    about: str  # where the thresholds come from
    names: tuple[str, ...]  # (N,) of images; windows of a scene are called scene/row-column
    probabilities: NDArray[np.float32]  # (N, C)
    known: NDArray[np.float32]  # (N,) share of the pixels that have values
    without: int = 0  # rows without data, which are left out
    windows: SceneWindows | None = None
    places: NDArray[np.int64] | None = None  # (N, 2) first row and column of every window
    # Of images: the footprint of each as well-known binary, and the reference system of all.
    geometry: tuple[bytes | None, ...] | None = None
    crs: str | None = None
    out: Path | None = None  # the file that was written
    seconds: float = 0.0

    def __repr__(self) -> str:
        unit = "images" if self.windows is None else "windows"
        left = f", {self.without} without data left out" if self.without else ""
        file = "" if self.out is None else f": {self.out}"
        return f"Predicted({len(self.names)} {unit}, {len(self.classes)} classes{left}{file})"

    @cached_property
    def decided(self) -> NDArray[np.bool_]:
        """(N, C): classes whose probability is at least their threshold."""
        found: NDArray[np.bool_] = self.probabilities >= self.thresholds
        return found

    @property
    def labels(self) -> list[tuple[str, ...]]:
        """The decided classes of every row."""
        names = np.array(self.classes, dtype=object)
        return [tuple(names[row]) for row in self.decided]

    def table(self) -> Table:
        """One row per image or window: decided classes, and a probability per class."""
        columns: dict[str, Any] = {"image": list(self.names)}
        geometry: Sequence[bytes | None] | None = self.geometry
        crs = self.crs
        if self.windows is not None and self.places is not None:
            scene, grid = self.windows.scene, self.windows.grid
            corners = outlines(scene.transform, self.places, _ends(self.places, grid))
            # Nanometres, or the tenth of a millimetre in degrees, without what sums leave behind.
            middles = corners[:, :4].mean(axis=1).round(9)
            columns |= {
                "row": self.places[:, 0],
                "column": self.places[:, 1],
                "x": middles[:, 0],
                "y": middles[:, 1],
                "data": self.known,
            }
            geometry, crs = polygons(corners), scene.crs
        columns["labels"] = [JOINT.join(row) for row in self.labels]
        for number, name in enumerate(self.classes):
            columns[f"{PREFIX}{name}"] = self.probabilities[:, number]
        limits = dict(zip(self.classes, map(_short, self.thresholds), strict=True))
        meta = {"thresholds": json.dumps(limits, ensure_ascii=False), "thresholds_are": self.about}
        return Table(columns, geometry, crs, meta)


def collect(
    opened: Opened, parts: Sequence[Result], classes: Sequence[str], thresholds: Thresholds
) -> Predicted:
    """All results, from those of the blocks; windows in rows from the top left."""
    probabilities = np.concatenate([part.numbers for part in parts])
    known = np.concatenate([part.known for part in parts])
    places, names = None, np.array(opened.names, dtype=object)
    if opened.scene is not None:
        grid = opened.scene.grid
        places = np.concatenate([grid.places(block) for block in range(grid.blocks)])
        order = np.lexsort((places[:, 1], places[:, 0]))
        places, known, probabilities = places[order], known[order], probabilities[order]
        names = np.array([f"{opened.names[0]}/{y}-{x}" for y, x in places], dtype=object)
    some = known > 0
    return Predicted(
        classes=tuple(classes),
        thresholds=np.array(thresholds.values, dtype=np.float32),
        about=thresholds.words,
        names=tuple(names[some]),
        probabilities=probabilities[some],
        known=known[some],
        without=int((~some).sum()),
        windows=opened.scene,
        places=None if places is None else places[some],
        geometry=None if opened.shapes is None else tuple(compress(opened.shapes, some)),
        crs=opened.crs,
    )


def _short(number: np.float32) -> float:
    """A number with as few digits as mean the same: 0.3, not 0.300000012 as in float32."""
    return float(str(number))


def _ends(places: NDArray[np.int64], grid: Any) -> NDArray[np.int64]:
    """Last row and column of windows, plus one; none is beyond the scene."""
    ends: NDArray[np.int64] = np.minimum(places + grid.window, (grid.height, grid.width))
    return ends


def outlines(
    transform: Any, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(N, 5, 2) corners of boxes of pixels in coordinates, the first one again at the end.

    They run counter-clockwise on a map with north above, as GeoJSON wants outer rings.
    """
    (top, left), (bottom, right) = begins.T, ends.T
    rows = np.stack([top, bottom, bottom, top, top], axis=1).astype(np.float64)
    columns = np.stack([left, left, right, right, left], axis=1).astype(np.float64)
    a, b, c, d, e, f = tuple(transform)[:6]
    return np.stack([a * columns + b * rows + c, d * columns + e * rows + f], axis=2)


def polygons(corners: NDArray[np.float64]) -> list[bytes]:
    """Rings of five corners as well-known binary (WKB)."""
    form = np.dtype([("order", "u1"), ("kind", "<u4"), ("rings", "<u4"), ("points", "<u4"),
                     ("corners", "<f8", (5, 2))])  # fmt: skip
    made = np.zeros(len(corners), dtype=form)
    made["order"], made["kind"], made["rings"], made["points"] = 1, 3, 1, 5
    made["corners"] = corners
    raw, size = made.tobytes(), form.itemsize
    return [raw[start : start + size] for start in range(0, len(raw), size)]

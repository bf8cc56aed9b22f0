"""What lies around an image: the georeferenced images of the same folder beside it, in one picture.

Where the files lie is read in a child process, which sends what it has as it goes: nobody waits for
it, and as long as the neighbours of an image are not known it has none.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from adagc.errors import DataError
from adagc.images import pictures as drawing
from adagc.images.base import SceneDataset
from adagc.images.composites import Composite
from adagc.images.footprint import TIFFS
from adagc.images.geotiff import place_of_file
from adagc.web.background import Background
from adagc.web.images import FolderScenes
from adagc.web.pictures import Picture

WIDER: Final = 3  # sides of the image that are shown, so that one lies on each side of it
SIDE: Final = 900  # pixels of the picture
_MOST: Final = 48  # images that are drawn, the nearest ones
_SENT: Final = 256  # files whose places are sent together
_GROUND: Final = (36, 40, 43)  # where nothing is known

Box = tuple[float, float, float, float]  # left, bottom, right, top


class Neighbours:
    """Where the images of a folder lie, as far as that is known yet.

    Args:
        images: The images; only those of a folder have neighbours.
    """

    def __init__(self, images: SceneDataset) -> None:
        self._boxes = np.full((len(images), 4), np.nan)
        self._systems = np.full(len(images), -1, dtype=np.int32)
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._work: Background | None = None
        if isinstance(images, FolderScenes) and find_spec("rasterio") is not None:
            rows = [row for row, file in enumerate(images.files) if file.lower().endswith(TIFFS)]
            if rows:
                self._work = Background(_look, (images, rows), self.add)

    def start(self) -> None:
        """Begin to read where the files lie, in the background."""
        if self._work is not None:
            self._work.start()

    def add(self, places: list[tuple[int, Box, str]]) -> None:
        """Take in where some images lie: row, box and reference system."""
        with self._lock:
            for row, box, system in places:
                self._boxes[row] = box
                self._systems[row] = self._numbers.setdefault(system, len(self._numbers))

    def window(self, row: int) -> Box | None:
        """What is shown around an image, a square; None if its place is not known."""
        left, bottom, right, top = self._boxes[row].tolist()
        if not right > left:
            return None
        half = WIDER * max(right - left, top - bottom) / 2
        x, y = (left + right) / 2, (bottom + top) / 2
        return x - half, y - half, x + half, y + half

    def around(self, row: int) -> list[int]:
        """The rows of the images around one, the nearest ones first."""
        window = self.window(row)
        if window is None:
            return []
        with self._lock:
            boxes, systems = self._boxes, self._systems
            left, bottom, right, top = window
            beside = (boxes[:, 0] < right) & (boxes[:, 2] > left)
            beside &= (boxes[:, 1] < top) & (boxes[:, 3] > bottom) & (systems == systems[row])
            beside[row] = False
            rows = np.flatnonzero(beside)
            middles = (boxes[rows, :2] + boxes[rows, 2:]) / 2
        own = np.array([(left + right) / 2, (bottom + top) / 2])
        order = np.argsort(((middles - own) ** 2).sum(axis=1), kind="stable")
        return [int(each) for each in rows[order][:_MOST]]

    def box(self, row: int) -> Box:
        """Where an image lies, in its reference system."""
        left, bottom, right, top = self._boxes[row].tolist()
        return left, bottom, right, top


def surroundings(
    images: SceneDataset, neighbours: Neighbours, row: int, composite: Composite
) -> Picture | None:
    """An image among its neighbours, outlined; None if there are none.

    Args:
        images: The images.
        neighbours: Where they lie.
        row: The image in the middle.
        composite: What to show of all of them.
    """
    window, others = neighbours.window(row), neighbours.around(row)
    if window is None or not others:
        return None
    canvas = Image.new("RGB", (SIDE, SIDE), _GROUND)
    for each in (*reversed(others), row):  # where they overlap, the nearer one is seen
        place = _pixels(neighbours.box(each), window)
        with suppress(DataError):  # a broken neighbour leaves a gap
            shown, known = drawing.eight_bits(images, each, composite.channels)
            _paste(canvas, shown, known, place)
    draw = ImageDraw.Draw(canvas)
    left, top, right, bottom = _pixels(neighbours.box(row), window)
    # Light and dark, so that it is seen on any ground.
    draw.rectangle((left - 3, top - 3, right + 2, bottom + 2), outline="black", width=1)
    draw.rectangle((left - 2, top - 2, right + 1, bottom + 1), outline="white", width=2)
    values = np.moveaxis(np.asarray(canvas), -1, 0)
    return Picture(*drawing.encode(values, longest=SIDE, quality=88))


def _pixels(box: Box, window: Box) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a box in the picture; those of neighbours meet."""
    scale = SIDE / (window[2] - window[0])
    left, right = (round((x - window[0]) * scale) for x in (box[0], box[2]))
    top, bottom = (round((window[3] - y) * scale) for y in (box[3], box[1]))
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _paste(
    canvas: Image.Image,
    shown: NDArray[np.uint8],
    known: NDArray[np.bool_],
    place: tuple[int, int, int, int],
) -> None:
    size = place[2] - place[0], place[3] - place[1]
    if max(size) > 8 * SIDE:  # a neighbour that is far larger would take all memory
        return
    grey = shown if len(shown) == 3 else np.repeat(shown[:1], 3, axis=0)
    picture = Image.fromarray(np.ascontiguousarray(np.moveaxis(grey, 0, -1)))
    mask = Image.fromarray(known.astype(np.uint8) * 255)
    canvas.paste(picture.resize(size, Image.Resampling.BILINEAR), place, mask.resize(size))


def _look(images: FolderScenes, rows: list[int]) -> Iterator[list[tuple[int, Box, str]]]:
    """What the child process says: where the files lie, some at a time."""
    for start in range(0, len(rows), _SENT):
        yield list(_places(images, rows[start : start + _SENT]))


def _places(images: FolderScenes, rows: list[int]) -> Iterator[tuple[int, Box, str]]:
    """Row, box and reference system of the images that lie north up and say where."""
    for row in rows:
        found = place_of_file(images.path(row))
        if found is None:
            continue
        (first, second, third, _), system = found
        (left, top), (right, bottom) = first, third
        finite = all(math.isfinite(number) for number in (*first, *third))
        if finite and second == (right, top) and right > left and top > bottom:
            yield row, (left, bottom, right, top), system

"""Mosaics: scenes of real textures with the class of every pixel, joined when they are asked for.

Source images stay where they are, decoded in the image cache. Of a mosaic only its plan is kept
(the class of every pixel, and the place of every patch), from which `gather` joins the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset
from adagc.images.mosaic.layout import MOST, choose_classes, cut, divide
from adagc.images.synthetic.noise import SceneNoise

_PIXELS_AT_ONCE = 2**17  # about 20 MB of working memory
# Independent streams of random numbers: other source images do not change the borders.
_LAYOUT, _SOURCES = 0, 1


class Part(NamedTuple):
    """Some mosaics, and the only source images that they are made from."""

    numbers: NDArray[np.int64]  # numbers of the scenes
    rows: NDArray[np.int64]  # rows of the source images, some of every class


class MosaicScenes(SceneDataset):
    """Mosaics of source images that show one class each.

    A scene depends on its number, `seed`, `size` and the source images of its part alone, not on
    the other scenes. Pixels are copied, never scaled or blended. A source that is smaller than the
    cell it fills is mirrored at its edges.

    Args:
        sources: The source images, all of one square size.
        kinds: Class of each source image, 0 to C - 1.
        parts: The scenes in their order, with the source images of each part.
        size: Height and width of a scene in pixels.
        seed: Seed of all scenes; another seed gives entirely different scenes.
    """

    maps: NDArray[np.unsignedinteger]  # (N, size, size) class of every pixel

    def __init__(
        self,
        sources: SceneDataset,
        kinds: NDArray[np.int64],
        parts: Sequence[Part],
        *,
        size: int = 96,
        seed: int = 0,
    ) -> None:
        numbers = np.concatenate([part.numbers for part in parts])
        self.names = tuple(f"mosaic_{number:06d}" for number in numbers)
        self.bands, self.dtype = sources.bands, sources.dtype
        self.shape = (sources.shape[0], size, size)
        self._sources = sources
        count, classes = len(numbers), int(kinds.max()) + 1
        self.maps = np.empty((count, size, size), dtype=np.min_scalar_type(classes - 1))
        # Of every patch: row of its source image, first row and column of this in the scene, turn.
        self._rows = np.empty((count, MOST), dtype=np.int64)
        self._corners = np.empty((count, MOST, 2), dtype=np.int64)
        self._turns = np.empty((count, MOST), dtype=np.int64)
        self._patches = np.zeros((count, classes), dtype=np.uint8)  # patch of a class in a scene
        step, done = self._step, 0
        for part in parts:
            pool = _Pool(kinds, part.rows, classes)
            for start in range(0, len(part.numbers), step):
                chunk = part.numbers[start : start + step]
                self._plan(slice(done, done + len(chunk)), chunk, pool, seed)
                done += len(chunk)

    def _plan(self, rows: slice, numbers: NDArray[np.int64], pool: _Pool, seed: int) -> None:
        """Decide everything about these scenes but their pixels."""
        size, side, classes = self.shape[-1], self._sources.shape[-1], self._patches.shape[1]
        layout = SceneNoise(seed, numbers, stream=_LAYOUT)
        cells = divide(layout, size, most=min(MOST, classes))
        own = choose_classes(layout, classes)
        scene = np.arange(len(numbers))[:, None]
        self.maps[rows] = own[scene, cells.reshape(len(cells), -1)].reshape(cells.shape)
        self._patches[rows][scene, own] = np.arange(own.shape[1])
        look = SceneNoise(seed, numbers, stream=_SOURCES)
        drawn = pool.draw(own, look.uniform(MOST))
        # Those that no pixel can show are replaced, so that they will not be read in vain.
        shown = np.arange(MOST) <= cells.max(axis=(1, 2))[:, None]
        self._rows[rows] = np.where(shown, drawn, drawn[:, :1])
        self._corners[rows], self._turns[rows] = cut(look, cells, side)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`."""
        rows = np.asarray(rows, dtype=np.int64)
        joined = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for start in range(0, len(rows), self._step):
            chunk = slice(start, start + self._step)
            self._join(rows[chunk], joined[chunk])
        return joined

    def _join(self, rows: NDArray[np.int64], joined: NDArray[Any]) -> None:
        """Copy the pixels of these scenes from their sources into `joined`."""
        used, image = np.unique(self._rows[rows], return_inverse=True)
        values = self._sources.gather(used)
        size, side, bands = self.shape[-1], values.shape[-1], values.shape[1]
        # A pixel of the scene is in row `at` of a patch's source, mirrored if it is outside, and in
        # its column `at`: each adds its own share to the index of the pixel in `values`.
        at = (np.arange(size) - self._corners[rows][..., None]) % (2 * side)
        at = np.minimum(at, 2 * side - 1 - at)  # (scenes, patches, 2, size)
        turn = self._turns[rows]
        for axis, bit in ((0, 1), (1, 2)):
            flipped = (turn & bit > 0)[..., None]
            at[:, :, axis] = np.where(flipped, side - 1 - at[:, :, axis], at[:, :, axis])
        swapped = (turn & 4 > 0)[..., None]
        down = at[:, :, 0] * np.where(swapped, 1, side)
        across = at[:, :, 1] * np.where(swapped, side, 1)
        down += (image.reshape(turn.shape) * (bands * side * side))[..., None]
        scene = np.arange(len(rows))[:, None, None]
        patch = self._patches[rows][scene, self.maps[rows]]
        place = (scene * MOST + patch) * size  # in `down` and `across`, as flat arrays
        steps = np.arange(size)
        index = np.take(down, place + steps[:, None]) + np.take(across, place + steps)
        for band in range(bands):
            np.take(values, index + band * side * side, out=joined[:, band], mode="clip")

    @property
    def depth(self) -> np.dtype[Any]:
        """See `SceneDataset.depth`."""
        return self._sources.depth

    def made_from(self, row: int) -> tuple[str, ...]:
        """Names of the source images of the classes that a scene shows, ordered by class."""
        shown = np.unique(self.maps[row])
        return tuple(self._sources.names[i] for i in self._rows[row, self._patches[row, shown]])

    @property
    def _step(self) -> int:
        """How many scenes are made at once."""
        return max(1, _PIXELS_AT_ONCE // self.shape[-1] ** 2)


class _Pool:
    """The source images of one part, from which any class can be drawn.

    Args:
        kinds: Class of every source image.
        rows: Rows of those that may be drawn.
        classes: Number of classes.
    """

    def __init__(self, kinds: NDArray[np.int64], rows: NDArray[np.int64], classes: int) -> None:
        self._ordered = rows[np.argsort(kinds[rows], kind="stable")]
        self._counts = np.bincount(kinds[rows], minlength=classes)
        self._starts = np.cumsum(self._counts) - self._counts

    def draw(self, own: NDArray[np.int64], draw: NDArray[np.float32]) -> NDArray[np.int64]:
        """Rows of source images of the classes `own`, (scenes, patches), by numbers in [0, 1).

        Returns:
            (scenes, 6); a patch that has no class gets any row, which no pixel will show.
        """
        rows = np.full(draw.shape, self._ordered[0], dtype=np.int64)
        share = draw[:, : own.shape[1]].astype(np.float64)
        picked = self._starts[own] + (share * self._counts[own]).astype(np.int64)
        rows[:, : own.shape[1]] = self._ordered[picked]
        return rows

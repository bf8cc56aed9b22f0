"""What is predicted, in blocks: image files, and rows of an array.

A block is read at once, by a thread that is ahead of the model. Which rows form a block follows
from the input alone, so that any number of processes predicts the same rows together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.base import SceneDataset
from adagc.images.decode import peek, read_image, resize
from adagc.images.missing import mark

_DECODERS = min(8, os.cpu_count() or 1)


class Block(Protocol):
    """What is read at once."""

    @property
    def known(self) -> NDArray[np.float32]:
        """(n,) share of each row's pixels that have a value; 0 for a row without data."""
        ...

    @property
    def mask(self) -> bytes:
        """What else is kept of it."""
        ...

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Raw values of these rows of the block, (len(rows), *shape of the model)."""
        ...


class Source(Protocol):
    """Something to predict."""

    unit: str  # what its rows are called: images, windows, rows

    @property
    def counts(self) -> Sequence[int]:
        """Number of rows in each block."""
        ...

    @property
    def extra(self) -> Sequence[int]:
        """Bytes in the mask of each block."""
        ...

    @property
    def stamp(self) -> tuple[object, ...]:
        """What must stay the same for work on it to be continued."""
        ...

    def read(self, block: int) -> Block:
        """Read a block."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows in memory, a block without a mask."""

    values: NDArray[Any]
    known: NDArray[np.float32]
    mask: bytes = b""

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `Block.gather`."""
        return self.values[rows]


def rows_of(values: NDArray[Any]) -> Rows:
    """A block of these values, with the share of each row's pixels of which a band has a value."""
    known = np.ones(len(values), dtype=np.float32)
    if values.dtype.kind == "f":
        # Of an embedding every number counts, of an image every pixel.
        missing = np.isnan(values)
        missing = missing.all(axis=1) if values.ndim == 4 else missing
        known = (1 - missing.reshape(len(values), -1).mean(axis=1)).astype(np.float32)
    return Rows(values, known)


def split(total: int, size: int) -> list[int]:
    """How many of `total` rows are in each block of `size`; the last one has the rest."""
    return [min(size, total - start) for start in range(0, total, size)]


class ArrayRows:
    """Rows of an array, or of a store of decoded images.

    Args:
        images: The rows.
        numbers: Which bands the model gets; None for all of them as they are.
        size: Rows in a block.
        stamp: What must stay the same for work on it to be continued.
    """

    unit = "rows"

    def __init__(
        self,
        images: SceneDataset,
        numbers: Sequence[int] | None,
        size: int,
        stamp: tuple[object, ...] = (),
    ) -> None:
        self._images, self._numbers, self._size, self._stamp = images, numbers, size, stamp
        self.counts = split(len(images), size)
        self.extra = [0] * len(self.counts)

    @property
    def stamp(self) -> tuple[object, ...]:
        """See `Source.stamp`."""
        return (*self._stamp, self._images.names, self._numbers, self._size)

    def read(self, block: int) -> Rows:
        """See `Source.read`."""
        first = block * self._size
        rows = np.arange(first, first + self.counts[block], dtype=np.int64)
        values = self._images.gather(rows)
        return rows_of(values if self._numbers is None else values[:, list(self._numbers)])


@dataclass(frozen=True)
class Picture:
    """How one image file is read."""

    path: Path
    numbers: tuple[int, ...]  # the bands that the model gets
    alpha: bool  # keep a band that the file declares to be transparency


class ImageFiles:
    """Image files, decoded and resized as for training.

    Args:
        pictures: The files.
        side: Height and width of the model's input.
        nodata: Numbers that stand for missing values, besides those that TIFF files name.
        size: Files in a block.
        skip: Leave out files that cannot be read, instead of raising an error.
    """

    unit = "images"

    def __init__(
        self,
        pictures: Sequence[Picture],
        *,
        side: int,
        nodata: Sequence[float],
        size: int,
        skip: bool = False,
    ) -> None:
        self._pictures, self._side, self._nodata = pictures, side, tuple(nodata)
        self._size, self._skip = size, skip
        self.counts = split(len(pictures), size)
        self.extra = [0] * len(self.counts)

    @property
    def stamp(self) -> tuple[object, ...]:
        """See `Source.stamp`."""

        def of(path: Path) -> tuple[object, ...]:
            try:
                stat = path.stat()
            except OSError:
                return (os.fspath(path),)
            return os.fspath(path), stat.st_size, stat.st_mtime_ns

        read = [(*of(one.path), one.numbers, one.alpha) for one in self._pictures]
        return (self._side, self._nodata, self._size, self._skip, read)

    def read(self, block: int) -> Rows:
        """See `Source.read`."""
        first = block * self._size
        mine = self._pictures[first : first + self.counts[block]]
        if len(mine) == 1:
            images = [self._load(mine[0])]
        else:
            with ThreadPoolExecutor(min(_DECODERS, len(mine))) as pool:
                images = list(pool.map(self._load, mine))
        return rows_of(np.stack(images))

    def _load(self, picture: Picture) -> NDArray[np.float32]:
        try:
            # Decoded at twice the size where that is quicker, as `adagc.images.decode.load` does.
            image = read_image(
                picture.path,
                at_least=None if self._nodata else 2 * self._side,
                alpha=picture.alpha,
            )
        except DataError:
            if not self._skip:
                raise
            shape = (len(picture.numbers), self._side, self._side)
            return np.full(shape, np.nan, dtype=np.float32)
        image = mark(image, self._nodata)[list(picture.numbers)]
        values: NDArray[np.float32] = resize(image, self._side).astype(np.float32)
        return np.where(np.isinf(values), np.float32(np.nan), values)


def keeps_alpha(path: Path, wanted: int, given: Sequence[str] | None) -> bool:
    """Whether a last band that a file declares to be transparency is one that the model needs.

    Many aerial images with four bands declare their near-infrared band like this. Names that the
    user gives say how many bands there are; otherwise it is kept if the model needs as many.
    """
    count = wanted if given is None else len(given)
    header = peek(path)
    return not header.alpha or header.shape[0] <= count

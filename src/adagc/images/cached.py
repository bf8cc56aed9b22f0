"""Images that are read from the image cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.band_names import agreed, band_names
from adagc.images.base import SceneDataset
from adagc.images.footprint import Place, file_place, footprints
from adagc.images.moments import Kept
from adagc.images.store.cache import ImageCache


class CachedScenes(SceneDataset):
    """Image files that an `ImageCache` holds in decoded form.

    Args:
        cache: The decoded images.
        names: Unique name of each image, to which label files refer.
        bands: Names of the bands; by default those that all files have for them (see `agreed`), or
            else those of `band_names`.
        root: Folder of the files, from which places on earth are read; None if they have none.
    """

    def __init__(
        self,
        cache: ImageCache,
        names: Sequence[str],
        bands: Sequence[str] | None = None,
        *,
        root: Path | None = None,
    ) -> None:
        self._root = root
        self.cache = cache
        self.names = tuple(names)
        self.files = cache.files  # relative paths of the source files
        count = cache.shape[0]
        self.bands = band_names(count, agreed(cache.named, count) if bands is None else bands)
        self.shape = cache.shape
        self.dtype = cache.dtype

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`."""
        return self.cache.gather(rows)

    def geometry(self, rows: NDArray[np.int64]) -> list[bytes | None]:
        """See `SceneDataset.geometry`."""
        shapes = self._places[0]
        return [shapes[row] for row in rows.tolist()]

    def place(self, row: int) -> Place | None:
        """See `SceneDataset.place`; only the file of this image is read."""
        return None if self._root is None else file_place(self._root / self.files[row])

    @property
    def crs(self) -> str | None:
        """See `SceneDataset.crs`."""
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[list[bytes | None], str | None]:
        """Of all files, since the reference system depends on all; read when first asked for."""
        if self._root is None:
            return [None] * len(self), None
        return footprints([self._root / file for file in self.files])

    @property
    def depth(self) -> np.dtype[Any]:
        """See `SceneDataset.depth`."""
        return self.cache.depth

    @property
    def side(self) -> int | None:
        """See `SceneDataset.side`."""
        return self.cache.side

    def measured(self, rows: NDArray[np.int64]) -> Kept:
        """See `SceneDataset.measured`; they are stored in the cache, so no pixel is read."""
        return self.cache.measured(rows)

"""Scenes that come out of the image cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.base import SceneDataset
from adagc.images.moments import Moments
from adagc.images.store.cache import ImageCache


class CachedScenes(SceneDataset):
    """Image files behind an `ImageCache`, by the names that label files use."""

    def __init__(
        self, cache: ImageCache, names: Sequence[str], bands: Sequence[str] | None = None
    ) -> None:
        self.cache = cache
        self.names = tuple(names)
        self.files = cache.files  # relative paths, for those who need the source
        self.bands = band_names(cache.shape[0], bands)
        self.shape = cache.shape
        self.dtype = cache.dtype

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`."""
        return self.cache.gather(rows)

    def moments(self, rows: NDArray[np.int64]) -> Moments:
        """See `SceneDataset.moments`: kept in the cache."""
        return self.cache.moments(rows)


def band_names(count: int, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The given names, checked; otherwise red, green and blue, grey, or numbers."""
    if given is None:
        plain = {1: ("grey",), 3: ("red", "green", "blue")}
        return plain.get(count) or tuple(f"band_{i}" for i in range(1, count + 1))
    if len(given) != count or len(set(given)) != count:
        raise DataError(
            f"{len(given)} band names ({', '.join(given)}) for images of {count} bands; "
            f"name every band once, in file order"
        )
    return tuple(given)

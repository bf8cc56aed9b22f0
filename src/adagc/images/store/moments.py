"""What is kept of the values of cached images, in a file beside them.

images-1f2e.npy has its moments in moments-1f2e.npy, which is there whole before an index names the
images. A cache of an older version has none: they are measured when first asked for.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import replacing
from adagc.images.moments import CHUNK_VALUES, KEPT, kept_dtype, tally_images
from adagc.images.store.index import map_array


def new_moments(array: NDArray[Any]) -> NDArray[Any]:
    """Room for the moments of images (N, bands, H, W)."""
    return np.zeros((*array.shape[:2], KEPT), dtype=kept_dtype(array.dtype))


def write_moments(images: Path, kept: NDArray[Any]) -> None:
    """Write them beside the images, whole or not at all; where that is impossible, not at all."""
    with (
        contextlib.suppress(
            OSError
        ),  # a full disk, or a cache shared by others: they can do without
        replacing(_beside(images)) as (temporary,),
        temporary.open("wb") as file,
    ):
        np.save(file, kept)


def read_moments(images: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Those beside the images; if there are none, measured now and written there."""
    kept = new_moments(array)
    with contextlib.suppress(OSError, ValueError):
        found = map_array(_beside(images))
        if (found.shape, found.dtype) == (kept.shape, kept.dtype):
            return found
    step = max(1, CHUNK_VALUES // math.prod(array.shape[1:]))
    for start in range(0, len(array), step):
        kept[start : start + step] = tally_images(array[start : start + step])
    if images.exists():  # images that were replaced meanwhile are only in the memory of their users
        write_moments(images, kept)
    return kept


def _beside(images: Path) -> Path:
    return images.with_name(images.name.replace("images-", "moments-", 1))

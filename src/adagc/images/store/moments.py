"""The file with the moments of cached images, beside the file of the images.

The moments of images-1f2e.npy are in moments-1f2e.npy, which is complete before an index names the
images. A cache of an older version has no such file: moments are then measured when first needed.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import replacing
from adagc.errors import NoSpaceError
from adagc.images.moments import CHUNK_VALUES, KEPT, kept_dtype, tally_images
from adagc.images.store.index import map_array
from adagc.progress import tracked


def new_moments(array: NDArray[Any]) -> NDArray[Any]:
    """An empty array for the moments of images (N, bands, H, W): (N, bands, 7)."""
    return np.zeros((*array.shape[:2], KEPT), dtype=kept_dtype(array.dtype))


def write_moments(images: Path, kept: NDArray[Any]) -> None:
    """Write the moments beside the images, atomically; if that is impossible, do nothing."""
    with (
        # The disk may be full or the cache read-only; moments can always be measured again.
        contextlib.suppress(OSError, NoSpaceError),
        replacing(_beside(images)) as (file,),
    ):
        np.save(file, kept)


def read_moments(images: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Read the moments from beside the images; if there are none, measure and write them.

    Args:
        images: File of the images.
        array: The images in this file, (N, bands, H, W).
    """
    kept = new_moments(array)
    with contextlib.suppress(OSError, ValueError):
        stored = map_array(_beside(images))
        if (stored.shape, stored.dtype) == (kept.shape, kept.dtype):
            return stored
    step = max(1, CHUNK_VALUES // math.prod(array.shape[1:]))
    for start in tracked(range(0, len(array), step), "measuring the bands"):
        kept[start : start + step] = tally_images(array[start : start + step])
    if images.exists():  # a newer build may have deleted the file, while the map is still usable
        write_moments(images, kept)
    return kept


def _beside(images: Path) -> Path:
    return images.with_name(images.name.replace("images-", "moments-", 1))

"""Scenes of any depth and band count as small pictures inside the page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.data.base import SceneDataset

SIDE = 144  # longest side of a thumbnail in pixels
TINY = 64  # up to here pixels are kept as they are and shown as squares


def thumbnails(images: SceneDataset, rows: NDArray[np.int64]) -> list[str]:
    """A data URI for each of these images, in natural colours as far as the bands allow.

    Values that are not 8-bit are stretched between their 2nd and 98th percentile, per band and
    over all these images together: a lake stays darker than a roof.
    """
    if not len(rows):
        return []
    values = images.gather(np.asarray(rows, dtype=np.int64))[:, list(images.rgb)]
    return [_encode(np.moveaxis(picture, 0, -1)) for picture in stretch(values)]


def stretch(values: NDArray[Any]) -> NDArray[np.uint8]:
    """(N, 3, H, W) of anything to 8 bits; what is not finite becomes black."""
    if values.dtype == np.uint8:
        return values
    work = values.astype(np.float64)
    good = np.isfinite(work)
    work[~good] = np.nan
    for band in range(work.shape[1]):
        seen = work[:, band][good[:, band]]
        if not seen.size:
            continue
        low, high = np.percentile(seen, (2, 98))
        work[:, band] = (work[:, band] - low) / max(high - low, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        work = np.clip(np.nan_to_num(work, posinf=1.0, neginf=0.0), 0.0, 1.0)
    return (255 * work).round().astype(np.uint8)


def _encode(picture: NDArray[np.uint8]) -> str:
    from PIL import Image

    drawn = Image.fromarray(np.ascontiguousarray(picture))
    buffer = io.BytesIO()
    if max(drawn.size) <= TINY:
        drawn.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        drawn.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        drawn.save(buffer, "JPEG", quality=82, optimize=True)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"

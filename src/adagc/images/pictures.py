"""Scenes of any depth and band count as small pictures inside the page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset

SIDE = 144  # longest side of a thumbnail in pixels
SAMPLE = 64  # images whose values decide how all are stretched
TINY = 64  # up to here pixels are kept as they are and shown as squares


def limits(images: SceneDataset) -> NDArray[np.float64] | None:
    """(3, 2) lowest and highest value to show in red, green and blue; None for 8-bit images.

    The 2nd and 98th percentile over images from all of the data set: a lake stays darker than a
    roof, and noise on open water is not blown up into colours.
    """
    if images.dtype == np.uint8:
        return None
    count = min(SAMPLE, len(images))
    rows = np.linspace(0, len(images) - 1, count).round().astype(np.int64)
    values = images.gather(rows)[:, list(images.rgb)].astype(np.float64)
    found = np.zeros((3, 2))
    for band in range(3):
        seen = values[:, band][np.isfinite(values[:, band])]
        if seen.size:
            found[band] = np.percentile(seen, (2, 98))
    return found


def thumbnails(
    images: SceneDataset, rows: NDArray[np.int64], between: NDArray[np.float64] | None
) -> list[str]:
    """A data URI for each of these images, in natural colours as far as the bands allow.

    Args:
        images: Where they are.
        rows: Which.
        between: The `limits` of the data set.
    """
    if not len(rows):
        return []
    values = images.gather(np.asarray(rows, dtype=np.int64))[:, list(images.rgb)]
    if between is not None:
        values = stretch(values, between)
    return [_encode(np.moveaxis(picture, 0, -1)) for picture in values]


def stretch(values: NDArray[Any], between: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(N, 3, H, W) of anything to 8 bits; what is not finite becomes black."""
    low, high = (between[:, side, None, None] for side in (0, 1))
    work = np.where(np.isfinite(values), values, low).astype(np.float64)
    share = (work - low) / np.where(high > low, high - low, 1.0)
    return (255 * np.clip(share, 0.0, 1.0)).round().astype(np.uint8)


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

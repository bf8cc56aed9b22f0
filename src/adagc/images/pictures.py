"""Thumbnails for the report: images of any bit depth and number of bands as small pictures."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.base import SceneDataset

SIDE = 144  # longest side of a thumbnail in pixels
SAMPLE = 64  # number of images from which the range of values to show is measured
TINY = 64  # up to this side length images are stored unchanged and shown with square pixels


def limits(images: SceneDataset) -> NDArray[np.float64] | None:
    """(3, 2) lowest and highest value to show in red, green and blue; None for 8-bit integers.

    These are the 2nd and 98th percentile over images from the whole data set. One range for all
    images keeps a lake darker than a roof and does not turn noise on open water into colours.
    """
    if images.dtype == np.uint8:
        return None
    if images.depth == np.uint8:  # missing values made floats of them
        return np.array([[0.0, 255.0]] * 3)
    count = min(SAMPLE, len(images))
    rows = np.linspace(0, len(images) - 1, count).round().astype(np.int64)
    values = images.gather(rows)[:, list(images.rgb)].astype(np.float64)
    ranges = np.zeros((3, 2))
    for band in range(3):
        finite = values[:, band][np.isfinite(values[:, band])]
        if finite.size:
            ranges[band] = np.percentile(finite, (2, 98))
    return ranges


def thumbnails(
    images: SceneDataset, rows: NDArray[np.int64], between: NDArray[np.float64] | None
) -> list[str]:
    """A data URI for each of these images, in natural colours as far as the bands allow.

    Args:
        images: The images of the data set.
        rows: Which of them to show.
        between: The range of values to show, from `limits`.
    """
    if not len(rows):
        return []
    values = images.gather(np.asarray(rows, dtype=np.int64))[:, list(images.rgb)]
    if between is not None:
        values = stretch(values, between)
    return [_encode(np.moveaxis(picture, 0, -1)) for picture in values]


def stretch(values: NDArray[Any], between: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Map values (N, 3, H, W) in the ranges `between` (3, 2) to 0 ... 255; NaN becomes black."""
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

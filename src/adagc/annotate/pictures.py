"""Images as pictures for a screen: the first version, in natural colours only."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from adagc.images.base import SceneDataset
from adagc.images.pictures import stretch


@dataclass(frozen=True)
class Composite:
    """Which bands are shown as red, green and blue."""

    name: str
    bands: tuple[str, str, str]


@dataclass(frozen=True)
class Picture:
    """An encoded picture."""

    data: bytes
    media_type: str


def composites(images: SceneDataset) -> tuple[Composite, ...]:
    """What can be shown of these images, the usual one first."""
    red, green, blue = (images.bands[i] for i in images.rgb)
    return (Composite("natural colour", (red, green, blue)),)


def picture(
    images: SceneDataset, row: int, composite: Composite, *, longest: int = 1024
) -> Picture:
    """One image as PNG or JPEG, no side longer than `longest`; DataError if it is broken."""
    where = [images.bands.index(band) for band in composite.bands]
    values = images.gather(np.array([row]))[:, where]
    if values.dtype != np.uint8:
        known = [band[np.isfinite(band)] for band in values[0].astype(np.float64)]
        ranges = [np.percentile(band, (2, 98)) if band.size else (0.0, 1.0) for band in known]
        values = stretch(values, np.array(ranges))
    drawn = Image.fromarray(np.ascontiguousarray(np.moveaxis(values[0], 0, -1)))
    drawn.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG" if max(drawn.size) <= 256 else "JPEG", quality=90)
    kind = "png" if max(drawn.size) <= 256 else "jpeg"
    return Picture(buffer.getvalue(), f"image/{kind}")

"""Images as annotators see them: a composite of bands, encoded for a browser, and their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.errors import DataError
from adagc.images import pictures as drawing
from adagc.images.base import SceneDataset
from adagc.images.composites import Composite, composites_of
from adagc.images.footprint import Place

__all__ = ["Composite", "Picture", "Place", "Stretch", "composites", "picture", "place"]

Stretch = Literal["image", "data set"]


@dataclass(frozen=True)
class Picture:
    """An encoded picture."""

    data: bytes
    media_type: str  # image/png, image/jpeg or image/webp


def composites(images: SceneDataset) -> tuple[Composite, ...]:
    """All ways to show these images, the most natural first; see `composites_of`.

    Raises:
        DataError: These are embeddings, of which there is nothing to see.
    """
    if not images.is_image:
        raise DataError(
            f"these are embeddings of {images.shape[0]} numbers, of which there is nothing to see:"
            " give the images they were made from"
        )
    return composites_of(images.bands)


def picture(
    images: SceneDataset,
    row: int,
    composite: Composite,
    *,
    longest: int = 1024,
    stretch: Stretch = "data set",
) -> Picture:
    """One image as a picture; missing values are transparent.

    Args:
        images: The data set.
        row: Which image.
        composite: What to show of it, one of `composites`.
        longest: Longest side in pixels; larger images are made smaller, none is made larger.
        stretch: What the darkest and the brightest value are taken from. "data set" measures some
            images once, so that a lake stays darker than a roof; images of 8 bits, which were made
            to be looked at, are then shown as they are. "image" shows the most of each image.
    """
    shown, known = drawing.eight_bits(images, row, composite.channels, alone=stretch == "image")
    sharp = max(shown.shape[1:]) <= drawing.SHARP
    data, kind = drawing.encode(
        shown, longest=longest, quality=None if sharp else 92, known=None if known.all() else known
    )
    return Picture(data, kind)


def place(images: SceneDataset, row: int) -> Place | None:
    """Where the image lies on earth: centre in degrees, size in metres; None if not known."""
    return images.place(row)

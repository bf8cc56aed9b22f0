"""Augmentation of whole batches of images, on the device that holds them.

There are turns and mirror images, which every training run may use, and strong views, which change
an image much more. Both work with any number of bands in any unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from adagc.ranks import Share, mean_of_bands, own

SMALLEST_SIDE = 8  # pixels; smaller maps have too little detail to crop or cut out
AREA = 0.5  # smallest share of a scene's area that a crop keeps, so that labels stay true
ASPECT = 4 / 3  # largest ratio of a crop's sides, in either direction
CUTOUT = 0.5  # side of the rectangle cut out, as a share of the scene's side
JITTER = 0.8  # share of images whose values change
GAIN = 0.4  # largest relative change of a band's contrast
OFFSET = 0.4  # largest shift of a band's values, in standard deviations
DROPOUT = 0.1  # share of bands that are replaced by their mean

Augmentation = Literal["dihedral", "none"]


def draw_turns(count: int, generator: torch.Generator) -> Tensor:
    """(count,) random numbers 0 to 7: for each image one of the eight symmetries of a square."""
    return torch.randint(8, (count,), generator=generator)


def dihedral(images: Tensor, turns: Tensor) -> Tensor:
    """Each image mirrored (bit 0), flipped (bit 1) and transposed (bit 2) as its number says.

    An image from above has no up or down, so all eight are equally valid. Images that are not
    square are never transposed, and embeddings are returned unchanged. The result has its channels
    last in memory: a turn is then one selection of pixels, several times faster than flips and far
    faster on small maps of many channels.
    """
    if images.dim() != 4:
        return images
    count, channels, height, width = images.shape
    pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
    places = _places(height, width).to(images.device)[turns.to(images.device)]
    first = torch.arange(count, device=images.device).unsqueeze(1) * (height * width)
    turned = pixels.index_select(0, (places + first).flatten())
    return turned.view(count, height, width, channels).permute(0, 3, 1, 2)


@lru_cache(maxsize=8)
def _places(height: int, width: int) -> Tensor:
    """(8, height * width) for each symmetry and position, the pixel that is moved there."""
    grid = torch.arange(height * width).view(height, width)
    grids = []
    for number in range(8):
        turned = grid.flip(1) if number & 1 else grid
        turned = turned.flip(0) if number & 2 else turned
        grids.append(turned.T if number & 4 and height == width else turned)
    return torch.stack([turned.reshape(-1) for turned in grids])


@overload
def strong_view(images: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor: ...
@overload
def strong_view(images: Share, scale: Tensor, generator: torch.Generator) -> Share: ...
@torch.no_grad()
def strong_view(
    images: Tensor | Share, scale: Tensor, generator: torch.Generator
) -> Tensor | Share:
    """Crop and resize, change the values band by band, drop bands, cut out a rectangle.

    Changes are relative to the usual values of a band, so that reflectances, decibels, 8-bit
    colours and stored features change by similar amounts: contrast is scaled about the band's mean
    over the batch, offsets are in standard deviations, and what is dropped or cut out becomes the
    mean. Turns and flips are not made here, because a training batch already has them if they are
    switched on. For embeddings and maps of less than 8 pixels a side, values are changed and
    dropped, but nothing is cropped or cut out.

    Args:
        images: (B, bands, H, W) or (B, D) raw values; not changed in place.
        scale: (bands,) or (1,) standard deviation of the raw values.
        generator: A generator on the CPU, so that draws depend neither on the device nor on the
            number of ranks.
    """
    drawn, centre = _StrongView.draw(images.shape, generator), mean_of_bands(images)
    if isinstance(images, Share):
        return images.map(lambda mine: drawn.of_this_rank()(mine, centre, scale))
    return drawn(images, centre, scale)


@dataclass(frozen=True)
class _StrongView:
    """The random numbers of a strong view, for every image of a batch; no pixels are needed."""

    crop: Tensor | None  # (B, 2, 3) affine map of the crop; None for embeddings and small maps
    gain: Tensor  # (B, bands) relative change of contrast
    offset: Tensor  # (B, bands) shift in standard deviations
    dropped: Tensor  # (B, bands) bool: bands that are replaced by their mean
    hole: Tensor | None  # (B, 2, 1) row and column, from 0 to 1, of the middle of the cut-out

    @classmethod
    def draw(cls, shape: torch.Size, generator: torch.Generator) -> _StrongView:
        """Draw the random numbers for a batch of this shape."""
        count, bands, *sides = shape
        spatial = len(sides) == 2 and min(sides) >= SMALLEST_SIDE
        crop = _draw_crop(count, generator) if spatial else None
        active = torch.rand(count, 1, generator=generator) < JITTER
        # Light and haze act on all bands at once, sensors and seasons on single ones.
        gain = _common_and_own(count, bands, generator) * GAIN * active
        offset = _common_and_own(count, bands, generator) * OFFSET * active
        dropped = torch.rand(count, bands, generator=generator) < DROPOUT
        dropped &= ~dropped.all(dim=1, keepdim=True)  # an image never loses all of its bands
        hole = torch.rand(count, 2, 1, generator=generator) if spatial else None
        return cls(crop, gain, offset, dropped, hole)

    def of_this_rank(self) -> _StrongView:
        """The draws of this rank's images."""
        return _StrongView(
            crop=None if self.crop is None else own(self.crop),
            gain=own(self.gain),
            offset=own(self.offset),
            dropped=own(self.dropped),
            hole=None if self.hole is None else own(self.hole),
        )

    def __call__(self, images: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        """The strong views of these images, given the mean and standard deviation of the bands."""
        shape = (1, -1) + (1,) * (images.dim() - 2)
        centre, scale = centre.view(shape), scale.view(shape)
        views = images if self.crop is None else _cropped(images, self.crop)
        views = self._jittered(views, centre, scale)
        per_band = self.dropped.view((*self.dropped.shape,) + (1,) * (images.dim() - 2))
        views = torch.where(per_band.to(images.device), centre, views)
        if self.hole is not None:
            views = torch.where(_cut_out(views, self.hole), centre, views)
        if views.dim() == 4:
            views = views.contiguous(memory_format=torch.channels_last)
        return views

    def _jittered(self, images: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        """Contrast changed about the centre, and an offset, band by band."""
        shape = (*self.gain.shape,) + (1,) * (images.dim() - 2)
        gain = (1.0 + self.gain).view(shape).to(images.device, images.dtype)
        offset = self.offset.view(shape).to(images.device, images.dtype)
        return centre + gain * (images - centre) + offset * scale


def _draw_crop(count: int, generator: torch.Generator) -> Tensor:
    """(count, 2, 3) affine map from each image to a random rectangle of it."""
    area = _uniform((count,), AREA, 1.0, generator)
    aspect = torch.exp(_uniform((count,), -1.0, 1.0, generator) * torch.tensor(ASPECT).log())
    # (columns, rows) as shares of the image; crops that would be larger than it are cut to fit.
    size = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()], dim=1).clamp(max=1.0)
    # In the coordinates of affine_grid an image extends from -1 to 1.
    middle = _uniform((count, 2), -1.0, 1.0, generator) * (1.0 - size)
    return torch.cat([torch.diag_embed(size), middle.unsqueeze(2)], dim=2)


def _cropped(images: Tensor, corners: Tensor) -> Tensor:
    """Each image's rectangle, stretched to the size of the image."""
    grid = functional.affine_grid(
        corners.to(images.device, images.dtype), list(images.shape), align_corners=False
    )
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _common_and_own(count: int, bands: int, generator: torch.Generator) -> Tensor:
    """(count, bands) random numbers from -1 to 1, half common to all bands of an image."""
    common = _uniform((count, 1), -0.5, 0.5, generator)
    return common + _uniform((count, bands), -0.5, 0.5, generator)


def _cut_out(images: Tensor, middle: Tensor) -> Tensor:
    """(B, 1, H, W) bool: a rectangle around each middle, clipped at the edges of the image."""
    height, width = images.shape[2:]
    rows = (_centres(height) - middle[:, 0]).abs() < CUTOUT / 2
    columns = (_centres(width) - middle[:, 1]).abs() < CUTOUT / 2
    return (rows[:, None, :, None] & columns[:, None, None, :]).to(images.device)


def _centres(pixels: int) -> Tensor:
    """(pixels,) position of each pixel's middle along a side of length 1."""
    return (torch.arange(pixels) + 0.5) / pixels


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator)

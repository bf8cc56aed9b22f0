"""Other views of the same scenes, for whole batches, on the device where they are.

Turns and mirror images, which every training may use, and strong views, hard to recognise, for any
number of bands of any unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from adagc.ranks import Share, mean_of_bands, own

SMALLEST_SIDE = 8  # pixels; a map with fewer has no detail to crop or to cut out
AREA = 0.5  # least share of a scene that a crop keeps: labels must stay true
ASPECT = 4 / 3  # of a crop, either way
CUTOUT = 0.5  # side of the hole, as a share of the scene's
JITTER = 0.8  # share of images whose values change
GAIN = 0.4  # of the contrast of a band
OFFSET = 0.4  # of a band, in standard deviations
DROPOUT = 0.1  # share of bands without content

Augmentation = Literal["dihedral", "none"]


def draw_turns(count: int, generator: torch.Generator) -> Tensor:
    """(count,) numbers 0 to 7, one of the eight symmetries of the square for each image."""
    return torch.randint(8, (count,), generator=generator)


def dihedral(images: Tensor, turns: Tensor) -> Tensor:
    """Each image mirrored (bit 0), flipped (bit 1) and transposed (bit 2) as its number says.

    An aerial view has no up or down, so all eight are equally good. Images that are not square
    are never transposed, embeddings pass as they are. The result has its channels last in memory:
    a turn is then one selection of pixels, several times faster than flips and far faster on small
    maps of many channels.
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
    """(8, height * width) which pixel each place of the eight symmetries shows."""
    grid = torch.arange(height * width).view(height, width)
    found = []
    for number in range(8):
        turned = grid.flip(1) if number & 1 else grid
        turned = turned.flip(0) if number & 2 else turned
        found.append(turned.T if number & 4 and height == width else turned)
    return torch.stack([turned.reshape(-1) for turned in found])


@overload
def strong_view(images: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor: ...
@overload
def strong_view(images: Share, scale: Tensor, generator: torch.Generator) -> Share: ...
@torch.no_grad()
def strong_view(
    images: Tensor | Share, scale: Tensor, generator: torch.Generator
) -> Tensor | Share:
    """Crop and resize, change the values band by band, drop bands, cut out a rectangle.

    Values move relative to what they usually are, so that reflectances, decibels, 8-bit colours
    and stored features are changed alike: contrast turns about the band's mean over the batch,
    offsets count standard deviations, and what is dropped or cut out becomes the mean. Turns and
    flips are not repeated here, a training batch has them already if they are wanted. Embeddings
    and maps of less than 8 pixels a side have their values changed and dropped, nothing else.

    Args:
        images: (B, bands, H, W) or (B, D), raw values; left as they are.
        scale: (bands,) or (1,) standard deviation of the raw values.
        generator: Of the CPU; draws do not depend on the device, nor on how many ranks there are.
    """
    drawn, centre = _StrongView.draw(images.shape, generator), mean_of_bands(images)
    if isinstance(images, Share):
        return images.map(lambda mine: drawn.of_this_rank()(mine, centre, scale))
    return drawn(images, centre, scale)


@dataclass(frozen=True)
class _StrongView:
    """What was drawn for every image of a batch; nothing here depends on a pixel."""

    crop: Tensor | None  # (B, 2, 3) which rectangle to stretch; None for what has no detail
    gain: Tensor  # (B, bands) change of contrast
    offset: Tensor  # (B, bands) in standard deviations
    dropped: Tensor  # (B, bands) bool: bands that lose their content
    hole: Tensor | None  # (B, 2, 1) row and column, from 0 to 1, of the middle of what is cut out

    @classmethod
    def draw(cls, shape: torch.Size, generator: torch.Generator) -> _StrongView:
        """For a batch of this shape."""
        count, bands, *sides = shape
        spatial = len(sides) == 2 and min(sides) >= SMALLEST_SIDE
        crop = _draw_crop(count, generator) if spatial else None
        active = torch.rand(count, 1, generator=generator) < JITTER
        # Light and haze act on all bands at once, sensors and seasons on single ones.
        gain = _common_and_own(count, bands, generator) * GAIN * active
        offset = _common_and_own(count, bands, generator) * OFFSET * active
        dropped = torch.rand(count, bands, generator=generator) < DROPOUT
        dropped &= ~dropped.all(dim=1, keepdim=True)  # an image never loses all
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
        """The views of these images."""
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
    """(count, 2, 3) a random rectangle of each image as an affine map."""
    area = _uniform((count,), AREA, 1.0, generator)
    aspect = torch.exp(_uniform((count,), -1.0, 1.0, generator) * torch.tensor(ASPECT).log())
    # (columns, rows) as shares of the image; an elongated crop of nearly all of it is cut to fit.
    size = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()], dim=1).clamp(max=1.0)
    # In the coordinates of affine_grid the image reaches from -1 to 1.
    middle = _uniform((count, 2), -1.0, 1.0, generator) * (1.0 - size)
    return torch.cat([torch.diag_embed(size), middle.unsqueeze(2)], dim=2)


def _cropped(images: Tensor, corners: Tensor) -> Tensor:
    """Each rectangle stretched to full size."""
    grid = functional.affine_grid(
        corners.to(images.device, images.dtype), list(images.shape), align_corners=False
    )
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _common_and_own(count: int, bands: int, generator: torch.Generator) -> Tensor:
    """(count, bands) in -1 ... 1."""
    common = _uniform((count, 1), -0.5, 0.5, generator)
    return common + _uniform((count, bands), -0.5, 0.5, generator)


def _cut_out(images: Tensor, middle: Tensor) -> Tensor:
    """(B, 1, H, W) a rectangle around each middle, over the edge where that is near."""
    height, width = images.shape[2:]
    rows = (_centres(height) - middle[:, 0]).abs() < CUTOUT / 2
    columns = (_centres(width) - middle[:, 1]).abs() < CUTOUT / 2
    return (rows[:, None, :, None] & columns[:, None, None, :]).to(images.device)


def _centres(pixels: int) -> Tensor:
    """(pixels,) where each pixel's middle is along a side of length 1."""
    return (torch.arange(pixels) + 0.5) / pixels


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator)

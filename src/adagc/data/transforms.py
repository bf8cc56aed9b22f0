"""Augmentation of whole batches, on the device where they are."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

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

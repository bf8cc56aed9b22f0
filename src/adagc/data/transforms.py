"""Augmentation of whole batches, on the device where they are."""

from __future__ import annotations

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
    are never transposed, embeddings pass as they are.
    """
    if images.dim() != 4:
        return images
    bits = turns.to(images.device).view(-1, 1, 1, 1)
    images = torch.where((bits & 1) > 0, images.flip(-1), images)
    images = torch.where((bits & 2) > 0, images.flip(-2), images)
    if images.shape[-1] == images.shape[-2]:
        images = torch.where((bits & 4) > 0, images.transpose(-1, -2), images)
    return images

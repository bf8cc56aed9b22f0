"""The last layer: one logit per class, from pooled features or from a map of them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


def drop(features: Tensor, share: float, training: bool) -> Tensor:
    """Dropout of features (B, D) or of whole channels of a map (B, D, h, w).

    On CPUs torch draws its own mask several times as slowly, a tenth of a step on features.
    """
    if share == 0 or not training:
        return features
    mask = _sixteen_bits(features.shape[:2], features.device) >= round(share * 2**16) - 2**15
    mask = mask.view(*mask.shape, *[1] * (features.dim() - 2))
    return features * (mask.to(features.dtype) / (1 - share))


def _sixteen_bits(shape: torch.Size, device: torch.device) -> Tensor:
    """Random int16, every value as likely as any other: four from one draw of 64 bits."""
    count = shape.numel()
    words = torch.empty(-(-count // 4), dtype=torch.int64, device=device)
    words.random_(-(2**63), None)  # by default the sign is left out
    return words.view(torch.int16)[:count].view(shape)


class Head(nn.Linear):
    """Dropout and a linear layer on pooled features."""

    on_map: ClassVar[bool] = False  # whether it takes a feature map instead of pooled features

    def __init__(self, width: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(width, classes)
        self.dropout = dropout

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of pooled features (B, D)."""
        return super().forward(drop(features, self.dropout, self.training))

    def extra_repr(self) -> str:
        """Shown by print(network)."""
        return f"{super().extra_repr()}, dropout={self.dropout}"


class ClassMapHead(Head):
    """The same layer at every position of a feature map, boosted where positive, then averaged.

    With a boost of 1 this is the plain head, because the mean of a linear map is the linear map
    of the mean; dropout leaves out whole channels for the same reason.
    """

    on_map: ClassVar[bool] = True

    def __init__(
        self, width: int, classes: int, *, boost: float = 1.0, dropout: float = 0.0
    ) -> None:
        super().__init__(width, classes, dropout=dropout)
        self.boost = boost

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, D, h, w)."""
        features = drop(features, self.dropout, self.training)
        return self.maps(features).mean(dim=(2, 3))

    def maps(self, features: Tensor) -> Tensor:
        """Class activation maps (B, C, h, w), boosted."""
        maps = functional.conv2d(features, self.weight[:, :, None, None], self.bias)
        return torch.where(maps > 0, self.boost * maps, maps)

    def extra_repr(self) -> str:
        """Shown by print(network)."""
        return f"{super().extra_repr()}, boost={self.boost}"

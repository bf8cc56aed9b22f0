"""Heads for objects and land cover: a class is present if some position shows it.

Both have class maps s_c(v), a linear layer at every position v of a feature map, and differ in what
makes a class present: see `adagc.losses.annotators`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from torch import Tensor

from adagc.losses import precise, presence_logits
from adagc.models.heads import ClassMapHead, register_head

if TYPE_CHECKING:
    from adagc.models.backbones import Backbone
    from adagc.models.spec import ModelSpec


class PositionHead(ClassMapHead):
    """Base class: class maps without a boost, on any backbone that has a feature map."""

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head that `spec` describes; how the backbone would pool features does not matter."""
        return cls(backbone.map_width, len(spec.classes), dropout=spec.dropout)


@register_head("any-position")
class AnyPositionHead(PositionHead):
    """A soft maximum over positions: z_c = log mean_v exp(s_c(v))."""

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, D, h, w)."""
        maps = precise(self.maps(features)).flatten(2)
        return maps.logsumexp(dim=2) - math.log(maps.shape[2])


@register_head("areas")
class AreaHead(PositionHead):
    """Classes compete at every position; one is present if it wins enough of them.

    The logits are those of presence, so that their sigmoid is the predicted probability.

    Args:
        width: Number of channels of the feature map (D).
        classes: Number of classes (C).
        looks: Number m of positions that presence is decided by.
        dropout: Share of the channels that are dropped in training.
    """

    def __init__(
        self, width: int, classes: int, *, looks: float = 9.0, dropout: float = 0.0
    ) -> None:
        super().__init__(width, classes, dropout=dropout)
        self.looks = looks

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head with the number of looks that `spec` sets."""
        return cls(
            backbone.map_width, len(spec.classes), looks=spec.head.looks, dropout=spec.dropout
        )

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of presence, of a feature map (B, D, h, w)."""
        return presence_logits(self.maps(features), self.looks)

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"{super().extra_repr()}, looks={self.looks}"

"""Heads for objects and land cover: a class is present if some position shows it.

They have class maps s_c(v), the values of every class c at every position v, made of the maps of
several stages of a network: fine ones, which know where something is, and coarse ones, which know
better what it is. The heads differ in what makes a class present: see `adagc.losses.annotators`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc.losses import precise, presence_logits
from adagc.models.heads import Head, drop, register_head

if TYPE_CHECKING:
    from adagc.models.backbones import Backbone
    from adagc.models.spec import ModelSpec


class PositionHead(Head):
    """Base class: a linear layer at every position of the finest map.

    It sees there the features of all stages, those of coarser maps interpolated.

    Args:
        widths: Number of channels of the map of each stage, finest first (D_k).
        classes: Number of classes (C).
        dropout: Share of the channels that are dropped in training.
    """

    on_map: ClassVar[bool] = True
    on_stages: ClassVar[bool] = True

    def __init__(self, widths: Sequence[int], classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.dropout = dropout
        self.layer = nn.Linear(sum(widths), classes)

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head that `spec` describes; how the backbone would pool features does not matter."""
        return cls(backbone.stage_widths, len(spec.classes), dropout=spec.dropout)

    def maps(self, stages: Sequence[Tensor]) -> Tensor:
        """Class maps (B, C, h, w) of the maps (B, D_k, h_k, w_k) of all stages, finest first."""
        size = stages[0].shape[2:]
        total = self.layer.bias[:, None, None]
        weights = torch.split(self.layer.weight, list(self.widths), dim=1)
        # A linear layer and an interpolation may change places; the few maps of the classes are
        # interpolated faster than the many of the features.
        for features, weight in zip(stages, weights, strict=True):
            features = drop(features, self.dropout, self.training)
            part = functional.conv2d(features, weight[:, :, None, None])
            if part.shape[2:] != size:
                part = functional.interpolate(part, size, mode="bilinear", align_corners=False)
            total = total + part
        return total

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"widths={self.widths}, dropout={self.dropout}"


@register_head("any-position")
class AnyPositionHead(PositionHead):
    """A soft maximum over positions: z_c = log mean_v exp(s_c(v))."""

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """Logits (B, C) of the maps of all stages."""
        maps = precise(self.maps(stages)).flatten(2)
        return maps.logsumexp(dim=2) - math.log(maps.shape[2])


@register_head("areas")
class AreaHead(PositionHead):
    """Classes compete at every position; one is present if it wins enough of them.

    The logits are those of presence, so that their sigmoid is the predicted probability.

    Args:
        widths: Number of channels of the map of each stage, finest first (D_k).
        classes: Number of classes (C).
        looks: Number m of positions that presence is decided by.
        dropout: Share of the channels that are dropped in training.
    """

    def __init__(
        self, widths: Sequence[int], classes: int, *, looks: float = 9.0, dropout: float = 0.0
    ) -> None:
        super().__init__(widths, classes, dropout=dropout)
        self.looks = looks

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head with the number of looks that `spec` sets."""
        return cls(
            backbone.stage_widths, len(spec.classes), looks=spec.head.looks, dropout=spec.dropout
        )

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """Logits (B, C) of presence, of the maps of all stages."""
        return presence_logits(self.maps(stages), self.looks)

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"{super().extra_repr()}, looks={self.looks}"

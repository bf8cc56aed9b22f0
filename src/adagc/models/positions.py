"""Heads for objects and land cover: a class is present if some position shows it.

The first two have class maps s_c(v), a linear layer at every position v of a feature map, and
differ in what makes a class present: see `adagc.losses.annotators`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional

from adagc.losses import precise, presence_logits
from adagc.models.heads import ClassMapHead, Head, LinearHead, register_head

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


@register_head("annotators")
class AnnotatorsHead(Head):
    """Three heads side by side on one feature map, of which one is in use.

    While it is not known how labels came about, each learns under an assumption of its own: any
    class that is present, any land cover that is present, or what covers much of the image.

    Args:
        width: Number of channels of the feature map (D).
        classes: Number of classes (C).
        looks: Number m of positions that presence is decided by, where classes compete.
        dropout: Share of the channels that are dropped in training.
    """

    on_map: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("random", "cover", "area")
    choice: Tensor  # () int64: number of the head in use; stored with the weights

    def __init__(
        self, width: int, classes: int, *, looks: float = 9.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.random = LinearHead(width, classes, dropout=dropout)
        self.cover = AreaHead(width, classes, looks=looks, dropout=dropout)
        self.area = AreaHead(width, classes, looks=looks, dropout=dropout)
        self.register_buffer("choice", torch.zeros((), dtype=torch.int64))

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head with the number of looks that `spec` sets."""
        return cls(
            backbone.map_width, len(spec.classes), looks=spec.head.looks, dropout=spec.dropout
        )

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of the head in use."""
        return self._logits(features, int(self.choice))

    def maps(self, features: Tensor) -> Tensor:
        """Class maps (B, C, h, w) of the head in use."""
        if self.choice == 0:
            weight = self.random.weight[:, :, None, None]
            return functional.conv2d(features, weight, self.random.bias)
        return (self.cover if self.choice == 1 else self.area).maps(features)

    def all_logits(self, features: Tensor) -> tuple[Tensor, ...]:
        """Logits (B, C) of every head."""
        return tuple(self._logits(features, number) for number in range(len(self.names)))

    def outputs(self, features: Tensor) -> tuple[Tensor, ...]:
        """What each annotator explains: logits, logits of presence, and class maps."""
        return self._logits(features, 0), self._logits(features, 1), self.area.maps(features)

    def _logits(self, features: Tensor, number: int) -> Tensor:
        if number == 0:
            return self.random.forward(features.mean(dim=(2, 3)))
        return (self.cover if number == 1 else self.area).forward(features)

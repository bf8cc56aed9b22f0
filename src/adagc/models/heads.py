"""Heads, the last layer of a network: one logit per class, from pooled features or a feature map.

The head also defines the probabilities that a network predicts. A `HeadSpec` names a head by its
kind; other packages add theirs with `register_head`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc.errors import AdagcError, UsageError

if TYPE_CHECKING:
    from adagc.models.backbones import Backbone
    from adagc.models.spec import ModelSpec


def drop(features: Tensor, share: float, training: bool) -> Tensor:
    """Dropout of features (B, D) or of whole channels of a map (B, D, h, w).

    Faster than torch's own dropout, which on CPUs draws its mask several times as slowly and takes
    a tenth of a training step on features.
    """
    if share == 0 or not training:
        return features
    mask = _sixteen_bits(features.shape[:2], features.device) >= round(share * 2**16) - 2**15
    mask = mask.view(*mask.shape, *[1] * (features.dim() - 2))
    return features * (mask.to(features.dtype) / (1 - share))


def _sixteen_bits(shape: torch.Size, device: torch.device) -> Tensor:
    """Uniformly random int16 values; one draw of 64 bits gives four of them."""
    count = shape.numel()
    words = torch.empty(-(-count // 4), dtype=torch.int64, device=device)
    words.random_(-(2**63), None)  # by default torch draws no negative numbers
    return words.view(torch.int16)[:count].view(shape)


class Head(nn.Module):
    """Base class of heads: turns features into logits for training and into probabilities."""

    on_map: ClassVar[bool] = False  # whether it takes a feature map instead of pooled features
    on_stages: ClassVar[bool] = False  # or the maps of several stages, finest first

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head that `spec` describes, with the input size that this backbone gives."""
        width = backbone.map_width if cls.on_map else backbone.width
        return cls(width, len(spec.classes), dropout=spec.dropout)

    def probabilities(self, features: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(B, C) float32 probability of each class: by default the sigmoid of the logits."""
        logits: Tensor = self(features)
        return logits.float().sigmoid()


_KINDS: dict[str, type[Head]] = {}
HEADS: Mapping[str, type[Head]] = MappingProxyType(_KINDS)
"""Every registered class of heads by its kind."""

_Any = TypeVar("_Any", bound=type[Head])


def register_head(kind: str) -> Callable[[_Any], _Any]:
    """Class decorator that registers a head: `@register_head("presence")` above its definition.

    A model file names only the kind, so the class must be imported before such a file is loaded.
    """

    def add(head: _Any) -> _Any:
        if kind in _KINDS:
            raise UsageError(f"there is already a head of kind {kind!r}: choose another name")
        _KINDS[kind] = head
        return head

    return add


def unregister_head(kind: str) -> None:
    """Remove a kind that `register_head` added; KeyError if there is none."""
    del _KINDS[kind]


@register_head("linear")
class LinearHead(Head, nn.Linear):
    """Dropout and a linear layer on pooled features."""

    def __init__(self, width: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(width, classes)
        self.dropout = dropout

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of pooled features (B, D)."""
        return super().forward(drop(features, self.dropout, self.training))

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"{super().extra_repr()}, dropout={self.dropout}"


@register_head("class-map")
class ClassMapHead(LinearHead):
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

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """As for every head, but refuses a backbone whose pooling is more than a plain mean.

        Its class maps would not average to the logits.
        """
        if not backbone.pools_by_mean:
            raise AdagcError(
                f"backbone {spec.backbone} does more than average its features over positions, so "
                "class maps do not add up to its logits: use another one, for example resnet50"
            )
        return cls(
            backbone.map_width, len(spec.classes), boost=spec.head.boost, dropout=spec.dropout
        )

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, D, h, w)."""
        return self.maps(features).mean(dim=(2, 3))

    def maps(self, features: Tensor) -> Tensor:
        """Class activation maps (B, C, h, w), with positive values multiplied by `boost`."""
        features = drop(features, self.dropout, self.training)
        maps = functional.conv2d(features, self.weight[:, :, None, None], self.bias)
        return maps if self.boost == 1 else torch.where(maps > 0, self.boost * maps, maps)

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"{super().extra_repr()}, boost={self.boost}"

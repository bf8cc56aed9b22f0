"""A head whose deployed output is no sigmoid of its logits, and a method that asks for it.

Both as somebody else's package would define them; importing this module registers the head.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from adagc.methods import Method
from adagc.models import ClassMapHead, HeadSpec, LinearHead, register_head
from adagc.types import Losses


@register_head("presence")
class PresenceHead(LinearHead):
    """A softmax over classes and a background at every position; a class is present if anywhere.

    n_c = -Σ_u log(1 - a_c(u)),   p_c = 1 - exp(-n_c)
    """

    on_map: ClassVar[bool] = True

    maps = ClassMapHead.maps
    boost = 1.0

    def forward(self, features: Tensor) -> Tensor:
        return self.maps(features).mean(dim=(2, 3))

    def counts(self, features: Tensor) -> Tensor:
        maps = self.maps(features).flatten(2)
        background = torch.zeros_like(maps[:, :1])
        shares = torch.cat([maps, background], dim=1).softmax(dim=1)[:, :-1]
        return -torch.log1p(-shares.clamp(max=1 - 1e-6)).sum(dim=2)

    def probabilities(self, features: Tensor) -> Tensor:
        return -torch.expm1(-self.counts(features))


class Presence(Method):
    """Assumes negatives, on what is deployed: n for those, -log p for the observed class."""

    title = "Presence"
    needs = frozenset({"feature_map"})

    def head(self) -> HeadSpec:
        return HeadSpec("presence")

    def loss(self, network, batch, progress):
        p = network.probabilities(batch.images).clamp(1e-6, 1 - 1e-6)
        total = functional.binary_cross_entropy(p, (batch.observed > 0).float())
        return Losses(total, {"presence": total.detach()})


def by_hand(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """The formula on saved weights of a network of plain layers."""
    mean, std = (weights[f"normalise.{name}"].reshape(1, -1, 1, 1) for name in ("mean", "std"))
    maps = np.einsum("cd,bdhw->bchw", weights["head.weight"], (images - mean) / std)
    grown = np.exp(maps + weights["head.bias"].reshape(1, -1, 1, 1))
    shares = grown / (1 + grown.sum(axis=1, keepdims=True))
    return 1 - np.prod(1 - shares, axis=(2, 3))

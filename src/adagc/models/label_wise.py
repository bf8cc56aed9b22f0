"""Heads that pool a feature map separately for every class: one embedding, then one logit, each.

Symbols: f (B, D, h, w) features, u the reduced map, a attention, h (B, C, width) embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc.losses import precise
from adagc.models.heads import Head, drop, register_head

if TYPE_CHECKING:
    from adagc.models.backbones import Backbone
    from adagc.models.spec import ModelSpec

# Bound of |log σ|: allows codes from almost exact to almost pure noise, and exp stays finite.
_LOG_SIGMA = 6.0


class ClassVectors(nn.Linear):
    """A linear layer with one vector and one bias per class, applied to that class's embedding."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits (B, C) of embeddings (B, C, d)."""
        # Not einsum, which turns this into many tiny matrix products and is five times as slow.
        return (embeddings * self.weight).sum(dim=-1) + self.bias


@register_head("label-wise")
class LabelWiseHead(Head):
    """Every class pools the feature map by its own attention.

    u = GELU(W f)                        at every position, D -> width
    a_c = softmax over positions of s_c · u
    h_c = Σ a_c u,   z_c = w_c · h_c + b_c

    Args:
        channels: Number of channels of the feature map (D).
        classes: Number of classes (C).
        width: Number of features of an embedding.
        dropout: Share of the channels of the feature map that are dropped in training.
    """

    on_map: ClassVar[bool] = True

    def __init__(
        self, channels: int, classes: int, *, width: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        # Linear layers over positions: on small maps faster than 1 x 1 convolutions.
        self.reduce = nn.Linear(channels, width)
        self.score = nn.Linear(width, classes, bias=False)  # softmax would cancel a bias
        self.readout = ClassVectors(width, classes)

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head with the width of an embedding that `spec` sets."""
        return cls(
            backbone.map_width, len(spec.classes), width=spec.head.width, dropout=spec.dropout
        )

    def attention(self, reduced: Tensor) -> Tensor:
        """(B, C, h * w) weight of each position for each class, from u (B, h * w, width).

        The weights of a class sum to 1.
        """
        scores: Tensor = self.score(reduced)
        return scores.transpose(1, 2).contiguous().softmax(dim=2)

    def embed(self, features: Tensor) -> Tensor:
        """Label-wise embeddings (B, C, width) of a feature map (B, D, h, w)."""
        features = drop(features, self.dropout, self.training)
        reduced = functional.gelu(self.reduce(features.flatten(2).transpose(1, 2)))
        return torch.bmm(self.attention(reduced), reduced)

    def logits(self, embeddings: Tensor) -> Tensor:
        """Logits (B, C) of embeddings (B, C, width)."""
        result: Tensor = self.readout(embeddings)
        return result

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, D, h, w)."""
        return self.logits(self.embed(features))

    def extra_repr(self) -> str:
        """The settings that print(network) shows for this layer."""
        return f"dropout={self.dropout}"


@register_head("bottleneck")
class BottleneckHead(LabelWiseHead):
    """Label-wise embeddings are encoded as Gaussian codes, and logits are computed from these.

    (μ, s) = MLP(h),   σ = exp(clamp(s / 2, -6, 6)),   z_c = w_c · code_c + b_c

    The head itself is deterministic and uses μ as the code; a method that trains with noise adds
    it.

    Args:
        channels: Number of channels of the feature map (D).
        classes: Number of classes (C).
        width: Number of features of an embedding.
        latent: Number of features of a code.
        dropout: Share of the channels of the feature map that are dropped in training.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        width: int = 256,
        latent: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, classes, width=width, dropout=dropout)
        self.latent = latent
        self.encoder = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * latent)
        )
        self.readout = ClassVectors(latent, classes)

    @classmethod
    def build(cls, spec: ModelSpec, backbone: Backbone) -> Self:
        """The head with the widths of embedding and code that `spec` sets."""
        head = spec.head
        return cls(
            backbone.map_width,
            len(spec.classes),
            width=head.width,
            latent=head.latent,
            dropout=spec.dropout,
        )

    def encode(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ (B, C, latent) of embeddings (B, C, width), at least in float32."""
        mean, log_variance = precise(self.encoder(embeddings)).chunk(2, dim=-1)
        return mean, (log_variance / 2).clamp(-_LOG_SIGMA, _LOG_SIGMA)

    def logits(self, embeddings: Tensor) -> Tensor:
        """Logits (B, C) of codes (B, C, latent)."""
        return super().logits(embeddings)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, D, h, w), without noise."""
        first, activation, second = cast(tuple[nn.Linear, nn.ReLU, nn.Linear], self.encoder)
        # σ is not needed here, so only half of the encoder's second layer is computed.
        weight, bias = second.weight[: self.latent], second.bias[: self.latent]
        mean = functional.linear(activation(first(self.embed(features))), weight, bias)
        return self.logits(precise(mean))

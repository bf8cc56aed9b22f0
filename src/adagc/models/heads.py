"""The last layer: one logit per class."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Head(nn.Linear):
    """Dropout and a linear layer, on pooled features or at every position of a feature map."""

    def __init__(self, width: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(width, classes)
        self.dropout = dropout

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of pooled features (B, D)."""
        return super().forward(functional.dropout(features, self.dropout, self.training))

    def at_each_position(self, features: Tensor) -> Tensor:
        """Class activation maps (B, C, h, w) of a feature map (B, D, h, w).

        The same layer as a 1x1 convolution, without dropout: where pooling is the plain mean, the
        mean of the maps over space is the logit.
        """
        return functional.conv2d(features, self.weight[:, :, None, None], self.bias)

    def extra_repr(self) -> str:
        """Shown by print(network)."""
        return f"{super().extra_repr()}, dropout={self.dropout}"

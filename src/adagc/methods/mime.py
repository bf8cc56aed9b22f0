"""MIME: predictions from a noisy bottleneck, and a label matrix to which labels are only added.

Symbols: label-wise embeddings h, code (μ, σ) of each, Y the label matrix, β the weight of the
bottleneck, θ the threshold for new labels, S the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Method
from adagc.models.label_wise import BottleneckHead
from adagc.models.spec import HeadSpec
from adagc.ranks import spread
from adagc.types import Batch, Losses, Progress, Task


class MIME(Method):
    """Add confident labels behind an information bottleneck.

    Assume negative behind an information bottleneck, adding confident labels for good.

    L = (1/BC) Σ BCE(z, Y) + β KL
    code:  mean of S draws of μ + σ ε, which is μ + σ ε / √S with one draw ε ~ N(0, 1)
    KL:    -½ mean over all entries of 1 + 2 log σ - μ² - σ²
    Y:     starts as the observed positives; after each epoch from the warm-up's last one on,
           Y ← 1 where unobserved and p > θ, without noise and augmentation; never back to 0

    Predictions use μ, so they are deterministic.

    Args:
        bottleneck: Weight of the bottleneck's penalty (β): how much it costs the code of a class
            to carry information instead of noise.
        threshold: Predicted probability above which an unobserved class becomes a label for good
            (θ). A network trained on single labels is rarely this sure; lower values add more
            labels.
        warm_up: Share of all epochs that pass before labels are first added, from 0 to 1.
        samples: Number of random draws of the code that are averaged (S); more draws, less noise.
        width: Number of features in the embedding of each class.
        latent: Number of features in the code of each class.
    """

    title: ClassVar[str] = "MIME"
    family: ClassVar[str] = "SPML methods"
    paper: ClassVar[str] = (
        "Liu et al., Revisiting Pseudo-Label for Single-Positive Multi-Label Learning, ICML 2023"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"feature_map"})
    keeps: ClassVar[str] = "labels added per image"
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"threshold": (0.6, 0.8, 0.9, 0.95)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "bottleneck": (0, math.inf),
        "threshold": (0, 1),
        "warm_up": (0, 1),
        "samples": (1, math.inf),
        "width": (1, math.inf),
        "latent": (1, math.inf),
    }

    labels: Tensor  # (N, C) bool: Y
    unobserved: Tensor  # (N, C) bool
    added: Tensor  # () int64: labels that the last review added

    def __init__(
        self,
        *,
        bottleneck: float = 1e-4,
        threshold: float = 0.95,
        warm_up: float = 5 / 70,
        samples: int = 10,
        width: int = 256,
        latent: int = 256,
    ) -> None:
        super().__init__()
        self.bottleneck = bottleneck
        self.threshold = threshold
        self.warm_up = warm_up
        self.samples = samples
        self.width = width
        self.latent = latent

    def head(self) -> HeadSpec:
        """A last layer with a Gaussian code per class."""
        return HeadSpec("bottleneck", width=self.width, latent=self.latent)

    def setup(self, network: nn.Module, task: Task) -> None:
        """Start the label matrix with the observed positives."""
        super().setup(network, task)
        self.register_buffer("labels", task.observed > 0)
        self.register_buffer("unobserved", task.observed == 0, persistent=False)
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy of the noisy code's predictions with Y, and the weighted KL term."""
        head = cast(BottleneckHead, network.head)
        embed = cast(Callable[[Tensor], Tensor], network.label_embeddings)
        mean, log_sigma = head.encode(spread(embed, batch.images))
        sigma = log_sigma.exp()
        noise = torch.randn(mean.shape, generator=batch.generator, dtype=mean.dtype)
        code = mean + sigma * noise.to(mean.device) / math.sqrt(self.samples)
        matrix = losses.binary_cross_entropy(head.logits(code), self.labels[batch.index])
        cross_entropy = losses.reduce(matrix)
        kl = divergence(mean, sigma, log_sigma)
        total = cross_entropy + self.bottleneck * kl
        return Losses(total, {"cross_entropy": cross_entropy, "divergence": kl})

    def reviews(self, progress: Progress) -> bool:
        """True from the last epoch of the warm-up on."""
        return progress.epoch >= max(1, round(self.warm_up * progress.epochs))

    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Add unobserved entries with p above the threshold to the labels, for good."""
        new = (probabilities > self.threshold) & self.unobserved & ~self.labels
        self.labels |= new
        self.added.copy_(new.sum())

    def estimates(self) -> Tensor:
        """(N, C) the label matrix Y: 1.0 for observed and added labels, 0.0 elsewhere."""
        return self.labels.to(torch.float32)

    def status(self) -> dict[str, Any]:
        """Number of labels that the last review added, and of all labels added so far."""
        return {
            "labels_added": int(self.added),
            "labels_added_so_far": int((self.labels & self.unobserved).sum()),
        }


def divergence(mean: Tensor, sigma: Tensor, log_sigma: Tensor) -> Tensor:
    """Mean over all entries of KL( N(μ, σ²) ‖ N(0, 1) ).

    >>> divergence(torch.zeros(3), torch.ones(3), torch.zeros(3))
    tensor(0.)
    """
    return (mean.square() + sigma.square() - 1).mean() / 2 - log_sigma.mean()

"""Upper bounds that are trained on clean labels: GT w/ BCE and IUN."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from adagc import losses
from adagc.errors import AdagcError
from adagc.methods.base import Method, positives
from adagc.types import Batch, Losses, Progress


class GroundTruth(Method):
    """Train on the clean labels: the upper bound.

    L = (1/BC) Σ [ y* ℓ⁺ + (1 - y*) ℓ⁻ ]

    y* are the clean labels.
    """

    title: ClassVar[str] = "GT w/ BCE"
    aliases: ClassVar[tuple[str, ...]] = ("GT",)
    family: ClassVar[str] = "Ground-truth training"
    needs: ClassVar[frozenset[str]] = frozenset({"truth"})

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy with the clean labels y*."""
        truth = _truth(batch)
        total = losses.reduce(losses.binary_cross_entropy(network(batch.images), truth))
        return Losses(total, {"cross_entropy": total})


class IgnoreUnobserved(Method):
    """Train on observed positives and true negatives only.

    Train on the observed positive and the true negatives; ignore unobserved positives.

    L = (1/BC) Σ [ y ℓ⁺ + (1 - y*) ℓ⁻ ]

    Unobserved positives add 0 to the sum but count in the denominator.
    """

    title: ClassVar[str] = "IUN"
    family: ClassVar[str] = "Ground-truth training"
    paper: ClassVar[str] = (
        "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"truth"})

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy of observed positives and true negatives."""
        logits = network(batch.images)
        y = positives(batch.observed)
        positive = losses.reduce(y * losses.positive(logits))
        negative = losses.reduce((1 - _truth(batch)) * losses.negative(logits))
        return Losses(positive + negative, {"positive": positive, "negative": negative})


def _truth(batch: Batch) -> Tensor:
    if batch.truth is None:
        raise AdagcError("this method needs clean training labels (--truth FILE)")
    return batch.truth

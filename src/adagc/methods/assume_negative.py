"""Baselines that assume every unobserved label is negative: AN, AN-LS, WAN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from adagc import losses
from adagc.methods.base import Method, positives
from adagc.types import Batch, Losses, Progress

COLE = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"


class AssumeNegative(Method):
    """Assume that every unobserved label is negative.

    L = (1/BC) Σ [ y ℓ⁺ + (1 - y) ℓ⁻ ]
    """

    title: ClassVar[str] = "AN"
    family: ClassVar[str] = "Baseline methods"
    paper: ClassVar[str] = COLE

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy that takes every unobserved label as negative."""
        y = positives(batch.observed)
        total = losses.reduce(losses.binary_cross_entropy(network(batch.images), y))
        return Losses(total, {"assume_negative": total})


class LabelSmoothing(Method):
    """Assume negative, with smoothed labels.

    AN against the targets y (1 - s) + (1 - y) s.

    Args:
        smoothing: By how much the targets are moved away from 1 and 0 (s): observed positives are
            trained towards 1 - s, unobserved entries towards s.
    """

    title: ClassVar[str] = "AN-LS"
    family: ClassVar[str] = "Baseline methods"
    paper: ClassVar[str] = COLE
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"smoothing": (0.05, 0.1, 0.2)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"smoothing": (0, 0.5)}

    def __init__(self, *, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy with the smoothed labels."""
        y = positives(batch.observed)
        soft = y * (1 - self.smoothing) + (1 - y) * self.smoothing
        total = losses.reduce(losses.binary_cross_entropy(network(batch.images), soft))
        return Losses(total, {"assume_negative": total})


class WeakAssumeNegative(Method):
    """Assume negative, with a small weight for such negatives.

    L = (1/BC) Σ [ y ℓ⁺ + w (1 - y) ℓ⁻ ]

    Args:
        negative_weight: Weight of an assumed negative; an observed positive weighs 1 (w). By
            default 1 / (C - 1) for C classes, so that the one positive weighs as much as all
            assumed negatives of an image together.
    """

    title: ClassVar[str] = "WAN"
    family: ClassVar[str] = "Baseline methods"
    paper: ClassVar[str] = COLE
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"negative_weight": (0, math.inf)}

    def __init__(self, *, negative_weight: float | None = None) -> None:
        super().__init__()
        self.negative_weight = negative_weight

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy in which assumed negatives are weighted by w."""
        logits = network(batch.images)
        y = positives(batch.observed)
        w = self.negative_weight
        if w is None:
            w = 1.0 / max(logits.shape[1] - 1, 1)
        positive = losses.reduce(y * losses.positive(logits))
        negative = losses.reduce((1 - y) * losses.negative(logits)) * w
        return Losses(positive + negative, {"positive": positive, "negative": negative})

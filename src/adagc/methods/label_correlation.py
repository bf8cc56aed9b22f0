"""LCR: classes with similar names should get similar predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.errors import AdagcError
from adagc.methods.base import Method, positives
from adagc.text import correlation
from adagc.types import Batch, Losses, Progress, Task

Form = Literal["smoothing", "targets"]


class LabelCorrelation(Method):
    """Assume negative; similar names get similar predictions.

    Assume negative, and pull the predictions of classes with similar names together.

    Names:      S_cc' = max(0, cos(ê_c, ê_c')), S_cc = 0, rows divided by their sum;
                ê_c = e_c - mean(e), e_c the embedding of the name of class c
    Smoothing:  L = L_AN + λ (1/BC) Σ_i Σ_c Σ_c' S_cc' (p_ic - p_ic')²
    Targets:    L = L_AN with min(1, max(y, ρ Sᵀ y)) in place of y, and 0 where a class was seen
                to be absent

    Without subtracting the mean, all cosines are large and nearly equal, and every class would be
    related to every other. A class without a similar one has a row of zeros. These formulas follow
    the idea of the paper, whose own formulas were not available.

    Args:
        weight: How strongly the predictions of related classes are pulled together (λ); only used
            with the form "smoothing".
        form: How related classes influence each other: "smoothing" pulls their predictions
            together, "targets" passes a part of every observed label on to related classes.
        share: Part of an observed label that is passed on to all related classes together, from 0
            to 1 (ρ); only used with the form "targets".
    """

    title: ClassVar[str] = "LCR"
    family: ClassVar[str] = "RS-specific methods"
    paper: ClassVar[str] = (
        "Hua et al., Learning Multi-Label Aerial Image Classification under Label Noise: A"
        " Regularization Approach Using Word Embeddings, IGARSS 2020"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"text"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (0.01, 0.1, 1.0)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"weight": (0, math.inf), "share": (0, 1)}

    correlation: Tensor  # (C, C) S

    def __init__(
        self, *, weight: float = 0.1, form: Form = "smoothing", share: float = 0.3
    ) -> None:
        super().__init__()
        self.weight = weight
        self.form = form
        self.share = share

    def check(self, task: Task) -> None:
        """Check options and task, which needs one embedding per class."""
        super().check(task)
        assert task.text is not None  # super().check refused the task otherwise
        if len(task.text) != len(task.classes):
            raise AdagcError(
                f"{self.title} got {len(task.text)} embeddings for {len(task.classes)} classes:"
                " give one row per class (--text FILE)"
            )

    def setup(self, network: nn.Module, task: Task) -> None:
        """Compute the similarities S of the class names."""
        super().setup(network, task)
        assert task.text is not None  # check() refused the task otherwise
        s = torch.from_numpy(correlation(task.text.detach().cpu().double().numpy()))
        if not s.any():
            warnings.warn("no two class names are related: LCR is AN here", stacklevel=2)
        self.register_buffer("correlation", s.float())

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy with smoothed predictions, or with labels passed on to related classes."""
        logits = network(batch.images)
        if self.form == "targets":
            total = losses.reduce(losses.binary_cross_entropy(logits, self._targets(batch)))
            return Losses(total, {"handed_on": total})
        y = positives(batch.observed)
        negative = losses.reduce(losses.binary_cross_entropy(logits, y))
        smoothing = losses.reduce(self._differences(logits))
        return Losses(
            negative + self.weight * smoothing,
            {"assume_negative": negative, "smoothing": smoothing},
        )

    # Sums over products instead of matrix products, which mixed precision would round to bfloat16.

    def _differences(self, logits: Tensor) -> Tensor:
        """(B, C) Σ_c' S_cc' (p_ic - p_ic')², how far related classes are predicted apart."""
        p = losses.precise(logits).sigmoid()
        squared = (p.unsqueeze(2) - p.unsqueeze(1)) ** 2  # (B, C, C)
        return (self.correlation * squared).sum(dim=2)

    def _targets(self, batch: Batch) -> Tensor:
        """(B, C) targets: observed labels, and the part of them passed on to related classes."""
        y = positives(batch.observed)
        passed_on = (self.correlation * y.unsqueeze(2)).sum(dim=1)  # Sᵀ y
        soft = torch.maximum(y, self.share * passed_on).clamp(max=1)
        return soft * (batch.observed >= 0)

"""GR: soft labels and robust losses for unobserved entries, trusted more as training goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Method
from adagc.types import Batch, Losses, Progress


class GeneralizedRobust(Method):
    """Give soft labels and robust losses, trusted more and more.

    Give unobserved entries soft labels and robust losses, and trust them more over time.

    Observed:    ℓ⁺ = -log p
    Unobserved:  v [ K L₂ + (1 - K) L₃ ]
        L₂ = (1 - p^q₂) / q₂          the entry is positive
        L₃ = (1 - (1 - p)^q₃) / q₃    the entry is negative
        K  = σ(w p + b)               how likely it is positive, no gradient
        v  = exp(-(p - μ)² / 2s²)     how much it counts, no gradient

    w, b, μ and s go linearly from their first to their last value, r = (e - 1) / (T - 1) in epoch
    e of T. Both losses lie between cross-entropy (q → 0) and a loss linear in p (q = 1), whose
    gradient fades where the network is sure. Entries seen to be absent have ℓ⁻ = -log(1 - p).

    Args:
        slope_start: How strongly the assumed chance K that an unobserved class is present follows
            the network's prediction p, in the first epoch (w); 0 ignores the prediction.
        slope_end: The same slope in the last epoch (w).
        offset_start: K of an entry with p = 0, as a logit, in the first epoch (b); -2 is a chance
            of 0.12.
        offset_end: The same logit in the last epoch (b).
        centre_start: Prediction p at which an unobserved entry counts most, in the first epoch
            (μ).
        centre_end: The same prediction in the last epoch (μ).
        width_start: How far from μ an unobserved entry still counts, in the first epoch: the
            standard deviation of a bell curve over p (s).
        width_end: The same standard deviation in the last epoch (s).
        positive_exponent: Exponent of the loss of an unobserved entry as a positive (q₂); 0 is
            cross-entropy, 1 is linear in p and more robust to wrong labels.
        negative_exponent: Exponent of the loss of an unobserved entry as a negative (q₃); 0 is
            cross-entropy, 1 is linear in p and more robust to wrong labels.
    """

    title: ClassVar[str] = "GR"
    family: ClassVar[str] = "SPML methods"
    paper: ClassVar[str] = (
        "Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust"
        " Loss, IJCAI 2024"
    )
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "slope_end": (2.0, 4.0),
        "offset_end": (-2.0, -3.0),
        "centre_end": (0.7, 0.8),
        "width_end": (0.5, 1.0),
        "positive_exponent": (0.01, 0.1),
        "negative_exponent": (0.5, 1.0, 1.5),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "width_start": (0.01, math.inf),
        "width_end": (0.01, math.inf),
        "positive_exponent": (0, math.inf),
        "negative_exponent": (0, math.inf),
    }

    def __init__(
        self,
        *,
        slope_start: float = 0.0,
        slope_end: float = 2.0,
        offset_start: float = -2.0,
        offset_end: float = -2.0,
        centre_start: float = 0.5,
        centre_end: float = 0.8,
        width_start: float = 2.0,
        width_end: float = 0.5,
        positive_exponent: float = 0.01,
        negative_exponent: float = 1.0,
    ) -> None:
        super().__init__()
        self.slope_start = slope_start
        self.slope_end = slope_end
        self.offset_start = offset_start
        self.offset_end = offset_end
        self.centre_start = centre_start
        self.centre_end = centre_end
        self.width_start = width_start
        self.width_end = width_end
        self.positive_exponent = positive_exponent
        self.negative_exponent = negative_exponent

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy on what was observed, v [ K L₂ + (1 - K) L₃ ] elsewhere."""
        z = losses.precise(network(batch.images))
        observed = batch.observed
        positive, negative = losses.positive(z), losses.negative(z)

        r = _ramp(progress)
        w = _between(self.slope_start, self.slope_end, r)
        b = _between(self.offset_start, self.offset_end, r)
        mu = _between(self.centre_start, self.centre_end, r)
        s = _between(self.width_start, self.width_end, r)
        p = z.detach().sigmoid()
        K = torch.sigmoid(w * p + b)
        v = torch.exp(-((p - mu) ** 2) / (2 * s**2))
        L2 = generalised(positive, self.positive_exponent)
        L3 = generalised(negative, self.negative_exponent)

        soft = losses.reduce(torch.where(observed == 0, v * (K * L2 + (1 - K) * L3), 0.0))
        known = torch.where(observed > 0, positive, negative)
        hard = losses.reduce(torch.where(observed != 0, known, 0.0))
        return Losses(hard + soft, {"observed": hard, "unobserved": soft})


def generalised(cross_entropy: Tensor, q: float) -> Tensor:
    """(1 - a^q) / q of a cross-entropy -log a: the cross-entropy for q → 0, 1 - a for q = 1.

    It is computed from the cross-entropy because its slope is then a^q, at most 1; computed from a,
    the slope a^(q - 1) would overflow for small a.
    """
    if q == 0:
        return cross_entropy
    x = q * cross_entropy
    # expm1 is exact for small x, but its gradient 1 + expm1(-x) is inexact for large x.
    return torch.where(x < 0.5, -torch.expm1(-x), 1 - torch.exp(-x)) / q


def _ramp(progress: Progress) -> float:
    """Share r of the schedule that is done: 0 in the first (or only) epoch, 1 in the last."""
    return min(1.0, (progress.epoch - 1) / max(progress.epochs - 1, 1))


def _between(start: float, end: float, share: float) -> float:
    return start + share * (end - start)

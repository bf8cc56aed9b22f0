"""ASL: assumed negatives weigh less where the network already predicts a low probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from adagc import losses
from adagc.methods.base import Method
from adagc.types import Batch, Losses, Progress


class AsymmetricLoss(Method):
    """Assume negative, with little weight for easy negatives.

    Observed:    (1 - p)^γ⁺ ℓ⁺,             ℓ⁺ = -log p
    Unobserved:  p_m^γ⁻ (-log(1 - p_m)),    p_m = max(p - m, 0)

    Below p = m an unobserved entry has no loss at all; above, its loss grows slowly and never
    exceeds -log m. Entries seen to be absent have the full loss ℓ⁻ = -log(1 - p). With
    γ⁺ = γ⁻ = m = 0 this is AN.

    Args:
        positive_focus: How fast the weight of an observed positive falls as its predicted
            probability p rises (γ⁺); 0 keeps the full weight.
        negative_focus: How fast the weight of an unobserved entry falls with its predicted
            probability p (γ⁻); 0 keeps the full weight.
        margin: Predicted probability below which an unobserved entry has no loss at all (m).
        focus_gradient: Whether gradients also flow through these weights; otherwise the weights are
            constants that only scale the gradients of the logarithms.
    """

    title: ClassVar[str] = "ASL"
    family: ClassVar[str] = "Left out by the paper"
    paper: ClassVar[str] = (
        "Ridnik et al., Asymmetric Loss for Multi-Label Classification, ICCV 2021"
    )
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "negative_focus": (2.0, 4.0),
        "margin": (0.0, 0.05),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "positive_focus": (0, math.inf),
        "negative_focus": (0, math.inf),
        "margin": (0, 1),
    }

    def __init__(
        self,
        *,
        positive_focus: float = 0.0,
        negative_focus: float = 4.0,
        margin: float = 0.05,
        focus_gradient: bool = False,
    ) -> None:
        super().__init__()
        self.positive_focus = positive_focus
        self.negative_focus = negative_focus
        self.margin = margin
        self.focus_gradient = focus_gradient

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy with focus weights, and with a margin for unobserved entries."""
        z = losses.precise(network(batch.images))
        m = self.margin
        positive = self._fade(torch.sigmoid(-z), self.positive_focus) * losses.positive(z)
        # log(1 - p + m) without forming 1 - p; positive where p < m, which p_m = 0 cuts off.
        log_m = torch.tensor(m, dtype=z.dtype, device=z.device).log()
        shifted = -torch.logaddexp(logsigmoid(-z), log_m).clamp(max=0)
        unobserved = self._fade(z.sigmoid() - m, self.negative_focus) * shifted

        observed = batch.observed
        known = torch.where(observed > 0, positive, losses.negative(z))
        known = losses.reduce(torch.where(observed != 0, known, 0.0))
        assumed = losses.reduce(torch.where(observed == 0, unobserved, 0.0))
        return Losses(known + assumed, {"observed": known, "assume_negative": assumed})

    def _fade(self, share: Tensor, focus: float) -> Tensor:
        """Weight max(share, ε)^γ with a tiny ε > 0, so that no slope is infinite for γ < 1."""
        if not self.focus_gradient:
            share = share.detach()
        weight: Tensor = share.clamp(min=torch.finfo(share.dtype).tiny) ** focus
        return weight

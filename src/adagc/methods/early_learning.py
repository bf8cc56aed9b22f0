"""ELR: keep the predictions that the network made before it memorised wrong labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from adagc import losses
from adagc.methods.base import Method, positives
from adagc.methods.state import SampleTable
from adagc.types import Batch, Losses, Progress, Task


class EarlyLearning(Method):
    """Assume negative; stay close to own averaged predictions.

    Assume negative, and reward agreement with the network's own averaged predictions.

    L = L_AN + λ R,   both reduced alike over all entries, observed positives included
    t ← β t + (1 - β) p                            at every visit, before t is used
    R = log(1 - p t)                               form "product"
    R = log(1 - [p t + (1 - p)(1 - t)])            form "binary"

    With t ≈ p an unobserved entry is driven to 1 if p exceeds 1 / (λ - 1) (product) or
    λ / (2 (λ - 1)) (binary: never below one half, and not at all for λ ≤ 2), and to 0 below. With
    single positives the predictions of present classes stay near 1 / (labels per image), which only
    the product can raise.

    The loss has no lower bound: a training loss far below 0 is normal. A class seen to be absent
    takes part in L_AN alone.

    The original, for one label per image, starts its table at 0: no class is remembered, and R has
    no gradient. For "binary" t = 0 would instead say that every class is absent. The original with
    the two classes present and absent has two columns that both start at 0, t⁺ and t⁻; after n
    visits p t⁺ + (1 - p) t⁻ is [p t + (1 - p)(1 - t)] - βⁿ / 2 with the t that starts at ½. So
    the gradients have the same sign, and their ratio goes to 1 as βⁿ fades.

    Args:
        weight: How strongly agreement with the averaged predictions is rewarded (λ); 0 is the
            method AN.
        momentum: Share of the old value that an image's averaged prediction keeps when the image
            is visited again, once per epoch (β).
        form: What counts as agreement of the current and the averaged prediction: "product" when
            both say that the class is present, "binary" when both say the same, present or absent
            (the inner product of the two-class probabilities).
        start: Averaged prediction of every entry before the first visit of its image, from 0 to 1;
            by default the value that gives R no gradient: 0 for "product", 0.5 for "binary".
    """

    title: ClassVar[str] = "ELR"
    family: ClassVar[str] = "General label noise methods"
    paper: ClassVar[str] = (
        "Liu et al., Early-Learning Regularization Prevents Memorization of Noisy Labels, NeurIPS"
        " 2020; for many labels as in Burgert et al., On the Effects of Different Types of Label"
        " Noise in Multi-Label Remote Sensing Image Classification, TGRS 2022"
    )
    keeps: ClassVar[str] = "predictions per image"
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "weight": (1.0, 3.0, 5.0, 7.0),
        "momentum": (0.7, 0.9),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weight": (0, math.inf),
        "momentum": (0, 1),
        "start": (0, 1),
    }

    def __init__(
        self,
        *,
        weight: float = 3.0,
        momentum: float = 0.9,
        form: Literal["product", "binary"] = "product",
        start: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.momentum = momentum
        self.form = form
        self.start = start

    def setup(self, network: nn.Module, task: Task) -> None:
        """Create the averaged predictions at `start`."""
        super().setup(network, task)
        rows, columns = task.observed.shape
        neutral = 0.0 if self.form == "product" else 0.5  # gives R no gradient
        start = neutral if self.start is None else self.start
        self.memory = SampleTable(rows, columns, start=start)

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy that takes unobserved labels as negative, and the regulariser."""
        logits = network(batch.images)
        p = losses.precise(logits.detach()).sigmoid()
        t = self.memory.average(batch.index, p, self.momentum, first=False)
        agreement = losses.gradient_calibration if self.form == "product" else binary_agreement
        assume_negative = losses.reduce(
            losses.binary_cross_entropy(logits, positives(batch.observed))
        )
        early_learning = losses.reduce(agreement(logits, t, batch.observed < 0))
        total = assume_negative + self.weight * early_learning
        return Losses(total, {"assume_negative": assume_negative, "early_learning": early_learning})

    def estimates(self) -> Tensor:
        """(N, C) the averaged predictions t."""
        return self.memory.values


def binary_agreement(logits: Tensor, targets: Tensor, excluded: Tensor) -> Tensor:
    """log(1 - [p t + (1 - p)(1 - t)]), 0 where excluded.

    Written as logaddexp(log p + log(1 - t), log(1 - p) + log t), which is exact for any logit and
    keeps the gradient with respect to z between -1 and 1. A certain t makes one of the two -inf,
    and the other one is the result.

    Args:
        logits: (B, C) z.
        targets: (B, C) t in [0, 1]; no gradient flows into them.
        excluded: (B, C) entries other than 0 are left out.
    """
    z = losses.precise(logits)
    t = targets.detach().to(z.dtype).clamp(0, 1)  # rounding may leave an average above 1
    matrix = torch.logaddexp(logsigmoid(z) + torch.log1p(-t), logsigmoid(-z) + torch.log(t))
    return torch.where(excluded == 0, matrix, torch.zeros_like(matrix))

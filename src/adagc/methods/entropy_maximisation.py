"""EM and EM+APL: unobserved entries stay undecided; EM+APL then labels the unlikely negative."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Method, negative_share
from adagc.types import Batch, Losses, Progress, Task

ZHOU = (
    "Zhou et al., Acknowledging the Unknown for Multi-Label Learning with Single Positive Labels,"
    " ECCV 2022"
)


class EntropyMaximisation(Method):
    """Keep unobserved labels undecided instead of negative.

    Observed:    ℓ⁺ = -log p
    Unobserved:  -α H(p),    H(p) = -p log p - (1 - p) log(1 - p)

    The gradient on an unobserved logit is α p (1 - p) z: it is 0 at p = .5 and points back there.
    The loss may be negative, but never below -α log 2. Entries seen to be absent have
    ℓ⁻ = -log(1 - p).

    Args:
        weight: How strongly predictions of unobserved entries are held at 0.5 (the paper's α).
    """

    title: ClassVar[str] = "EM"
    family: ClassVar[str] = "Left out by the paper"
    paper: ClassVar[str] = ZHOU
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (0.01, 0.1, 0.2)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"weight": (0, math.inf)}

    def __init__(self, *, weight: float = 0.1) -> None:
        super().__init__()
        self.weight = weight

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy of the observed entries, -α H of the others."""
        logits = network(batch.images)
        observed = known_entries(logits, batch.observed)
        entropy = losses.reduce(torch.where(batch.observed == 0, losses.entropy(logits), 0.0))
        total = observed - self.weight * entropy
        return Losses(total, {"observed": observed, "entropy": entropy})


class AsymmetricPseudoLabels(Method):
    """EM, then call the least likely unobserved labels negative.

    EM, then call the least likely unobserved labels negative, softly and for good.

    Observed:       ℓ⁺ = -log p
    Unknown:        -α H(p)
    Soft negative:  β [ p̂ ℓ⁺ + (1 - p̂) ℓ⁻ ]

    After each epoch from e_w on (but the last, T), the ⌊ρ U_c / (T - e_w)⌋ unknown entries of
    class c with the lowest p become soft negatives with p̂ = p of that moment; U_c counts the
    unknown entries at the start. Nothing ever becomes a positive: that is the asymmetry. Entries
    seen to be absent have ℓ⁻ = -log(1 - p).

    Args:
        weight: How strongly predictions of unknown entries are held at 0.5 (the paper's α).
        pseudo_weight: Weight of a soft negative in the loss (β); an observed label weighs 1.
        share: Share of the unknown entries of each class that are soft negatives at the end of
            training, from 0 to 1 (ρ). By default it is 0.9 as published, or less if --priors says
            that fewer of them are negative.
        warm_up: Share of all epochs that pass before the first soft negatives are chosen, from 0
            to 1; e_w is that number of epochs.
    """

    title: ClassVar[str] = "EM+APL"
    family: ClassVar[str] = "Left out by the paper"
    paper: ClassVar[str] = ZHOU
    keeps: ClassVar[str] = "soft negatives per image"
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "weight": (0.01, 0.1, 0.2),
        "pseudo_weight": (0.02, 0.2, 0.4, 0.9),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weight": (0, math.inf),
        "pseudo_weight": (0, math.inf),
        "share": (0, 1),
        "warm_up": (0, 1),
    }
    frequencies: ClassVar[frozenset[str]] = frozenset({"share"})
    fixed: ClassVar[Mapping[str, Any]] = {"share": 0.9}
    cost: ClassVar[float] = 7 / 6  # a forward pass (1/3 of a step) in half of the epochs

    unknown: Tensor  # (N, C) bool: unobserved and not a soft negative yet
    table: Tensor  # (N, C) float32: p̂, fixed once an entry is no longer unknown
    unknown_at_start: Tensor  # (C,) int64: U_c

    def __init__(
        self,
        *,
        weight: float = 0.1,
        pseudo_weight: float = 0.2,
        share: float | None = None,
        warm_up: float = 0.5,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.pseudo_weight = pseudo_weight
        self.share = share
        self.warm_up = warm_up

    def informed(self, task: Task) -> dict[str, Any]:
        """No more soft negatives than there are negatives.

        The published share leaves some of them unknown on the data that it was chosen for.
        """
        return {"share": min(self.fixed["share"], negative_share(task))}

    def setup(self, network: nn.Module, task: Task) -> None:
        """Create the table of labels: 1 or 0 where observed, 0.5 elsewhere."""
        super().setup(network, task)
        self.rho: float = self.settled(task)["share"]
        unknown = task.observed == 0
        self.register_buffer("unknown", unknown)
        self.register_buffer("table", 0.5 + 0.5 * task.observed.to(torch.float32))
        self.register_buffer("unknown_at_start", unknown.sum(dim=0))

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """The loss of EM, and cross-entropy of soft negatives with p̂."""
        logits = network(batch.images)
        unknown = self.unknown[batch.index]
        labelled = (batch.observed == 0) & ~unknown
        observed = known_entries(logits, batch.observed)
        entropy = losses.reduce(torch.where(unknown, losses.entropy(logits), 0.0))
        matrix = losses.binary_cross_entropy(logits, self.table[batch.index])
        pseudo = losses.reduce(torch.where(labelled, matrix, 0.0))
        total = observed - self.weight * entropy + self.pseudo_weight * pseudo
        return Losses(total, {"observed": observed, "entropy": entropy, "soft_negative": pseudo})

    def reviews(self, progress: Progress) -> bool:
        """True from epoch e_w on, except after the last epoch, when no training follows."""
        return self._warm_up_epochs(progress) <= progress.epoch < progress.epochs

    @torch.no_grad()
    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Make the least likely unknown entries of every class soft negatives."""
        rounds = max(progress.epochs - self._warm_up_epochs(progress), 1)
        # float64 on the CPU, since not every device has it: the product must round as ρ U / n does.
        count = (self.rho * self.unknown_at_start.cpu().double() / rounds).floor().long()
        self.table.copy_(torch.where(self.unknown, probabilities, self.table))
        chosen = lowest(probabilities, self.unknown, count.to(self.unknown.device))
        self.unknown &= ~chosen

    def _warm_up_epochs(self, progress: Progress) -> int:
        return max(1, int(self.warm_up * progress.epochs))

    def _soft_negatives(self) -> int:
        return int(self.unknown_at_start.sum() - self.unknown.sum())

    def estimates(self) -> Tensor | None:
        """(N, C) p̂ of soft negatives and p of the last review elsewhere; None before the first."""
        return self.table.clone() if self._soft_negatives() else None

    def status(self) -> dict[str, Any]:
        """Number of soft negatives chosen so far."""
        return {"soft_negatives": self._soft_negatives()}


def known_entries(logits: Tensor, observed: Tensor) -> Tensor:
    """Mean cross-entropy over all entries, where unobserved entries count as 0."""
    matrix = torch.where(observed > 0, losses.positive(logits), losses.negative(logits))
    return losses.reduce(torch.where(observed != 0, matrix, 0.0))


def lowest(values: Tensor, eligible: Tensor, count: Tensor) -> Tensor:
    """(N, C) mask of the `count[c]` eligible entries of column c with the lowest values.

    Among equal values the earlier rows are taken.

    >>> values = torch.tensor([[0.1], [0.3], [0.2]])
    >>> lowest(values, torch.tensor([[False], [True], [True]]), torch.tensor([1])).T
    tensor([[False, False,  True]])
    """
    order = values.masked_fill(~eligible, math.inf).argsort(dim=0, stable=True)
    rows = torch.arange(len(values), device=values.device).unsqueeze(1).expand_as(order)
    rank = torch.empty_like(order).scatter_(0, order, rows)
    return (rank < count) & eligible

"""The Large Loss family: LL-R, LL-Ct, LL-Cp.

A network learns clean labels before it memorises wrong ones, so an unobserved entry whose loss as a
negative stays large is probably a positive whose label is missing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Method, missing_labels, positives
from adagc.types import Batch, Losses, Progress, Task

KIM = "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022"


class LargeLoss(Method):
    """Base of the three methods: chooses which entries of a batch are suspects, and when.

    ℓ = y ℓ⁺ + (1 - y) ℓ⁻,   U = unobserved entries of the batch with ℓ > 0
    S = {U : ℓ ≥ θ},         θ the k-th largest ℓ of U
    L = (1/BC) Σ [ ℓ outside S, something else inside ]

    Entries whose loss equals θ are all in S, even if that makes more than k: equal losses are
    treated alike, whatever their position in the batch. If U has fewer than k entries, all of them
    are in S.
    """

    family: ClassVar[str] = "General label noise methods"
    paper: ClassVar[str] = KIM
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"final": (0.05, 0.1, 0.2, 0.3)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "final": (0, 1),
        "delta": (0, 100),
        "largest": (0, 1),
    }
    frequencies: ClassVar[frozenset[str]] = frozenset({"final", "delta", "largest"})
    fixed: ClassVar[Mapping[str, Any]] = {"final": 0.1}

    def __init__(
        self,
        *,
        final: float | None = None,
        delta: float | None = None,
        largest: float | None = None,
    ) -> None:
        super().__init__()
        self.final = final
        self.delta = delta
        self.largest = largest

    def informed(self, task: Task) -> dict[str, Any]:
        """The suspects of the last epoch are as many as the labels that are missing."""
        return {"final": min(1.0, missing_labels(task) / len(task.classes))}

    def setup(self, network: nn.Module, task: Task) -> None:
        """Decide on the share of suspects in the last epoch."""
        super().setup(network, task)
        self.last_share: float = self.settled(task)["final"]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy that takes unobserved labels as negative, except for the suspects."""
        logits = network(batch.images)
        labels = self._labels(batch)
        matrix = losses.binary_cross_entropy(logits, positives(labels))
        suspects = self._select(matrix.detach(), labels == 0, batch, progress)
        assume_negative = losses.reduce(matrix)
        total = losses.reduce(torch.where(suspects, self._instead(logits), matrix))
        correction = total - assume_negative
        return Losses(total, {"assume_negative": assume_negative, "correction": correction})

    def _labels(self, batch: Batch) -> Tensor:
        """(B, C) labels to train on: +1 present, 0 unobserved, -1 absent."""
        return batch.observed

    @abstractmethod
    def _instead(self, logits: Tensor) -> Tensor:
        """(B, C) the loss that an entry gets if it is a suspect."""

    def _select(
        self, matrix: Tensor, unobserved: Tensor, batch: Batch, progress: Progress
    ) -> Tensor:
        """(B, C) bool: the suspects, the set S of the class docstring."""
        return largest_losses(matrix, unobserved, self._count(batch, progress))

    def _count(self, batch: Batch, progress: Progress) -> int:
        """Number of suspects k = ⌈BC (t - 1) Δ⌉ of a batch in epoch t.

        There are none in the first epoch, whose losses say little yet.
        """
        share = (progress.epoch - 1) * self._pace(progress)
        if self.largest is not None:
            share = min(share, self.largest)
        return _round_up(batch.observed.numel() * share)

    def _pace(self, progress: Progress) -> float:
        """Share of all entries that every epoch after the first adds to the suspects (Δ)."""
        if self.delta is not None:
            return self.delta / 100
        return self.last_share / max(progress.epochs - 1, 1)


class LargeLossRejection(LargeLoss):
    """Ignore unobserved entries with a large loss.

    ℓ = y ℓ⁺ + (1 - y) ℓ⁻,   S = the k largest ℓ of the batch's unobserved entries
    L = (1/BC) Σ [ ℓ outside S, 0 inside ]
    k = ⌈BC (t - 1) Δ⌉ in epoch t of T,   Δ = final / (T - 1)

    Rejected entries still count in the denominator. Entries that tie with the k-th are rejected
    too; a class seen to be absent never is.

    Args:
        final: Share of all entries (images x classes) that is rejected in the last epoch, however
            many epochs there are. The right value is the share of labels that are missing, (labels
            per image - 1) / classes, which follows from --priors by default. With --priors
            published it is 0.1, a round number among those that the released code reaches in 10
            to 70 epochs.
        delta: Percentage of all entries by which the rejected share grows every epoch (Δ in per
            cent); replaces `final`. The paper tries 0.1 to 0.5, for ten epochs.
        largest: Upper limit of the rejected share of entries, from 0 to 1; no limit by default.
    """

    title: ClassVar[str] = "LL-R"

    def _instead(self, logits: Tensor) -> Tensor:
        return torch.zeros_like(losses.precise(logits))


class LargeLossTemporary(LargeLoss):
    """Call unobserved labels of large loss positive, for a step.

    ℓ = y ℓ⁺ + (1 - y) ℓ⁻,   S = the k largest ℓ of the batch's unobserved entries
    L = (1/BC) Σ [ ℓ outside S, ℓ⁺ inside ]
    k = ⌈BC (t - 1) Δ⌉ in epoch t of T,   Δ = final / (T - 1)

    Nothing is remembered: the next epoch decides anew. Entries that tie with the k-th are corrected
    too; a class seen to be absent never is.

    Args:
        final: Share of all entries (images x classes) that is corrected in the last epoch, however
            many epochs there are. The right value is the share of labels that are missing, (labels
            per image - 1) / classes, which follows from --priors by default. With --priors
            published it is 0.1, a round number among those that the released code reaches in 10
            to 70 epochs.
        delta: Percentage of all entries by which the corrected share grows every epoch (Δ in per
            cent); replaces `final`. The paper tries 0.1 to 0.5, for ten epochs.
        largest: Upper limit of the corrected share of entries, from 0 to 1; no limit by default.
    """

    title: ClassVar[str] = "LL-Ct"

    def _instead(self, logits: Tensor) -> Tensor:
        return losses.positive(logits)


class LargeLossPermanent(LargeLossTemporary):
    """Call unobserved labels of large loss positive, for good.

    ℓ = y ℓ⁺ + (1 - y) ℓ⁻,   S = the k largest ℓ of the batch's unobserved entries
    L = (1/BC) Σ [ ℓ outside S, ℓ⁺ inside ],   then y ← 1 in S
    k = A - (labels added so far),   A = ⌈Δ C (images visited since epoch 2)⌉,   Δ = final / (T - 1)

    Every epoch visits every image once, so the constant share Δ of every batch's entries adds up to
    `final` over epochs 2 to T. k brings the labels added so far up to that plan. Rounding BC Δ up
    in every batch instead would add too many, because added labels stay (with 32 images of 16
    classes, 70 epochs and final = .10, one label for BC Δ = .74 would end at .135).

    Added labels are no longer candidates and are never taken back; observed labels never change.
    Entries that tie with the k-th are added too, and the next batches add that many fewer.

    Args:
        final: Share of all entries (images x classes) that has been added as labels after the last
            epoch, however many epochs there are. The right value is the share of labels that are
            missing, (labels per image - 1) / classes, which follows from --priors by default. With
            --priors published it is 0.1, a round number among those that the released code reaches
            in 10 to 70 epochs.
        delta: Percentage of a batch's entries that every step adds as labels (Δ in per cent);
            replaces `final`. As in the paper it is rounded up to whole labels in every batch, so
            small batches add more than this percentage.
        largest: Share of all entries, from 0 to 1, at which no more labels are added; no limit by
            default.
    """

    title: ClassVar[str] = "LL-Cp"
    keeps: ClassVar[str] = "labels added per image"

    added: Tensor  # (N, C) bool: unobserved entries that were added as positives
    given: Tensor  # (N, C) bool: observed positives

    def setup(self, network: nn.Module, task: Task) -> None:
        """Create the label matrix with the observed labels and none added."""
        super().setup(network, task)
        self.register_buffer("added", torch.zeros_like(task.observed, dtype=torch.bool))
        # Follows from the data, so it is not stored in checkpoints.
        self.register_buffer("given", task.observed > 0, persistent=False)

    def _labels(self, batch: Batch) -> Tensor:
        return batch.observed.masked_fill(self.added[batch.index], 1)

    def _select(
        self, matrix: Tensor, unobserved: Tensor, batch: Batch, progress: Progress
    ) -> Tensor:
        suspects = super()._select(matrix, unobserved, batch, progress)
        self.added[batch.index] |= suspects
        return suspects

    def _count(self, batch: Batch, progress: Progress) -> int:
        """Number of labels to add so that the planned total is reached; 0 in the first epoch."""
        if progress.epoch == 1:
            return 0
        images, classes = self.added.shape
        so_far = int(self.added.sum())
        if self.delta is not None:
            count = _round_up(batch.observed.numel() * self._pace(progress))
        else:
            steps = progress.step % progress.steps_per_epoch + 1
            # The last batch of an epoch may be smaller than the others.
            visited = images if steps == progress.steps_per_epoch else steps * len(batch.index)
            visited += (progress.epoch - 2) * images
            count = _round_up(self._pace(progress) * classes * visited) - so_far
        if self.largest is not None:
            count = min(count, math.floor(self.largest * images * classes) - so_far)
        return max(count, 0)

    def estimates(self) -> Tensor:
        """(N, C) 1.0 for observed and added positives, 0.0 elsewhere."""
        return (self.given | self.added).to(torch.float32)

    def status(self) -> dict[str, Any]:
        """Number of labels added so far, for the history of the run."""
        return {"labels_added": int(self.added.sum())}


def largest_losses(matrix: Tensor, unobserved: Tensor, count: int) -> Tensor:
    """(B, C) bool: the unobserved entries whose loss is at least their count-th largest.

    With fewer than `count` candidates the threshold is 0. Entries with a loss of 0 are never
    candidates, so that this threshold does not select the whole batch.
    """
    if count <= 0:
        return torch.zeros_like(unobserved)
    candidates = unobserved & (matrix > 0)
    values = torch.where(candidates, matrix, torch.zeros_like(matrix))
    threshold = values.flatten().topk(min(count, values.numel())).values[-1]
    return candidates & (values >= threshold)


def _round_up(value: float) -> int:
    """⌈value⌉ without the effect of floating-point errors (100 * .07 gives 7, not 8)."""
    return math.ceil(value - 1e-6)

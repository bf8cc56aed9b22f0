"""LAC: pseudo-labels that hold in two views, and similar embeddings for entries of one class.

Symbols: weak view x and strong view x', label-wise embeddings h and h' (B, C, width), logits z and
z', targets Y and their mask M, projections e, temperature T, memory of Q pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc import losses
from adagc.augment import strong_view
from adagc.methods.base import Method, positives
from adagc.models.label_wise import LabelWiseHead
from adagc.models.spec import HeadSpec
from adagc.ranks import Share, spread
from adagc.types import Batch, Losses, Progress, Task


class LAC(Method):
    """Train two views on pseudo-labels; pull classes together.

    Train two views on confident pseudo-labels, and pull embeddings of a class together.

    Stage 1:        L = L_AN(z) + λ_p L_PLC
    Stage 2:        L = L_AN(z) + λ_p L_PLC + λ_c L_LAC
    Pseudo-labels:  Y = I(p ≥ τ) where unobserved, y elsewhere;   no gradient into p
                    M = I(p ≥ τ or p < 1 - τ) where unobserved, 1 elsewhere
    Consistency:    L_PLC = Σ M BCE(z', Y) / Σ M
    Contrast:       L_LAC = SupCon(e) over a memory of pairs (e, e') of the entries with Y = 1,
                    e = projector(h) / ‖projector(h)‖, pulled together if of the same class

    The strong view is made inside the loss from the batch's images, so both views have the same
    turns and flips. In each step new pairs replace the oldest ones of the memory, at most a quarter
    of it, chosen at random among the step's positives. Gradients flow through the new pairs; older
    ones are constants. There is no second network.

    Args:
        first_threshold: Predicted probability above which an unobserved class becomes a positive
            pseudo-label in stage 1 (τ); below 1 - τ it becomes a negative one, in between it is
            left out.
        threshold: The same threshold in stage 2 (τ).
        consistency: Weight of the loss that makes predictions for the strongly augmented view
            agree with the pseudo-labels (λ_p).
        contrast: Weight of the contrastive loss, which is part of stage 2 only (λ_c).
        temperature: Temperature of the contrastive loss (T); smaller values let the most similar
            embeddings count more.
        memory: Number of past pairs of embeddings that new ones are compared with (Q); by default
            four batches, at least 512 and at most 2048.
        first_stage: Share of all epochs that make up stage 1, before the contrastive loss is
            added, from 0 to 1.
        width: Number of features in the embedding of each class.
        projection: Number of features of an embedding after its projection for the contrastive
            loss.
    """

    title: ClassVar[str] = "LAC"
    family: ClassVar[str] = "SPML methods"
    paper: ClassVar[str] = (
        "Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive"
        " Labels, NeurIPS 2022"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"feature_map"})
    keeps: ClassVar[str] = "a queue of embeddings"
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "threshold": (0.6, 0.8, 0.9),
        "contrast": (0.1, 1.0),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "first_threshold": (0.5, 1),
        "threshold": (0.5, 1),
        "consistency": (0, math.inf),
        "contrast": (0, math.inf),
        "temperature": (0.05, math.inf),
        "memory": (4, 8192),
        "first_stage": (0, 1),
        "width": (1, math.inf),
        "projection": (1, math.inf),
    }
    cost: ClassVar[float] = 2.0

    def __init__(
        self,
        *,
        first_threshold: float = 0.6,
        threshold: float = 0.9,
        consistency: float = 1.0,
        contrast: float = 1.0,
        temperature: float = 0.5,
        memory: int | None = None,
        first_stage: float = 2 / 7,
        width: int = 256,
        projection: int = 128,
    ) -> None:
        super().__init__()
        self.first_threshold = first_threshold
        self.threshold = threshold
        self.consistency = consistency
        self.contrast = contrast
        self.temperature = temperature
        self.memory = memory
        self.first_stage = first_stage
        self.width = width
        self.projection = projection

    def head(self) -> HeadSpec:
        """A last layer with one embedding per class."""
        return HeadSpec("label-wise", width=self.width)

    def setup(self, network: nn.Module, task: Task) -> None:
        """Build the projector and an empty memory."""
        super().setup(network, task)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(task.seed)
            self.projector = nn.Sequential(
                nn.Linear(self.width, self.width),
                nn.ReLU(),
                nn.Linear(self.width, self.projection),
            )
        size = self.memory
        if size is None:
            batch = math.ceil(len(task.observed) / task.steps_per_epoch)
            size = min(max(512, 4 * batch), 2048)
        self.pairs = PairMemory(size, self.projection, self.temperature)

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The parameters of the network and of the projector."""
        projector = {"params": list(self.projector.parameters()), "lr": lr}
        return [*super().parameter_groups(network, lr), projector]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """L_AN of the weak view, consistency of the strong view and, in stage 2, the contrast."""
        head = cast(LabelWiseHead, network.head)
        images = strong_view(batch.images, _scale(network, batch.images), batch.generator)
        embed = cast(Callable[[Tensor], Tensor], network.label_embeddings)
        # The weak view goes last, so that the running statistics of batch normalisation are
        # closer to it: images are predicted without strong augmentation.
        strong, weak = spread(embed, images), spread(embed, batch.images)
        weak_logits = head.logits(weak)
        second = progress.epoch > round(self.first_stage * progress.epochs)
        tau = self.threshold if second else self.first_threshold
        targets, sure = pseudo_labels(weak_logits, batch.observed, tau)

        y = positives(batch.observed)
        assume_negative = losses.reduce(losses.binary_cross_entropy(weak_logits, y))
        gaps = losses.binary_cross_entropy(head.logits(strong), targets)
        consistency = (sure * gaps).sum() / sure.sum().clamp(min=1)
        total = assume_negative + self.consistency * consistency
        parts = {"assume_negative": assume_negative, "consistency": consistency}
        if second:
            contrast = self._contrast(weak, strong, targets, batch.generator)
            total = total + self.contrast * contrast
            parts["contrast"] = contrast
        return Losses(total, parts)

    def _contrast(
        self, weak: Tensor, strong: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Tensor:
        """L_LAC; also writes the pairs of this step's positives to the memory."""
        image, label = targets.nonzero(as_tuple=True)
        most = self.pairs.size // 4
        if len(image) > most:
            chosen = torch.randperm(len(image), generator=generator)[:most].to(image.device)
            image, label = image[chosen], label[chosen]
        pairs = torch.stack([weak[image, label], strong[image, label]], dim=1)
        with torch.autocast(pairs.device.type, enabled=False):
            fresh = functional.normalize(self.projector(losses.precise(pairs)), dim=-1)
            old, old_labels, crowd = self.pairs.exchange(fresh, label)
            # The two views of a pair become two rows, one after the other: (2 x pairs, dim).
            kept = old.flatten(0, 1), old_labels.repeat_interleave(2), crowd.flatten()
            return supervised_contrast(
                fresh.flatten(0, 1), label.repeat_interleave(2), self.temperature, kept
            )

    def status(self) -> dict[str, Any]:
        """Number of pairs in the memory, which stays empty in stage 1."""
        return {"pairs_in_memory": int(self.pairs.valid.sum())}


class PairMemory(nn.Module):
    """The last Q pairs of projected embeddings and their classes, first in, first out.

    The sum of each vector's similarities to all others is updated as pairs come and go, because
    comparing all Q pairs with each other in every step took a third of LAC's time on features.

    Args:
        size: Number of pairs it holds (Q).
        dim: Length of a vector.
        temperature: Temperature T of the similarities exp((e · e' - 1) / T).
    """

    vectors: Tensor  # (Q, 2, dim) float32 of length 1, weak and strong view
    labels: Tensor  # (Q,) int64
    valid: Tensor  # (Q,) bool: ever written
    next: Tensor  # () int64: where the next pair goes
    # (Q, 2) float64: Σ exp((e · e' - 1) / T) over all other e' in memory. In double precision,
    # because terms are added and later subtracted again and rounding errors must not pile up.
    crowd: Tensor

    def __init__(self, size: int, dim: int, temperature: float) -> None:
        super().__init__()
        self.size = size
        self.temperature = temperature
        self.register_buffer("vectors", torch.zeros(size, 2, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("valid", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))
        self.register_buffer("crowd", torch.zeros(size, 2, dtype=torch.float64))

    def exchange(self, fresh: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Replace the oldest pairs by these new ones (n ≤ Q, 2, dim) of classes `labels` (n,).

        Returns:
            The K pairs that stay (K, 2, dim), their classes (K,), and for each of their vectors
            log Σ exp(s) over the other vectors that stay (K, 2), with s = e · e' / T.
        """
        slots = (self.next + torch.arange(len(labels), device=labels.device)) % self.size
        gone = self.vectors[slots[self.valid[slots]]]
        self.valid[slots] = False
        stay = self.valid.nonzero().squeeze(1)
        old, fresh = self.vectors[stay], fresh.detach().to(self.vectors.dtype)

        crowd = self.crowd[stay] - self._similarities(old, gone).sum(dim=1).view(-1, 2)
        old_to_fresh = self._similarities(old, fresh)
        fresh_to_fresh = self._similarities(fresh, fresh).fill_diagonal_(0)
        self.crowd[stay] = crowd + old_to_fresh.sum(dim=1).view(-1, 2)
        self.crowd[slots] = (old_to_fresh.sum(dim=0) + fresh_to_fresh.sum(dim=1)).view(-1, 2)

        self.vectors[slots] = fresh
        self.labels[slots] = labels
        self.valid[slots] = True
        self.next.copy_((self.next + len(labels)) % self.size)
        return old, self.labels[stay], crowd.clamp(min=0).log() + 1 / self.temperature

    def _similarities(self, a: Tensor, b: Tensor) -> Tensor:
        """(2 n, 2 m) float64 exp((e · e' - 1) / T), at most 1, of n pairs with m pairs."""
        cosines = a.flatten(0, 1).double() @ b.flatten(0, 1).double().T
        return ((cosines - 1) / self.temperature).exp()


def pseudo_labels(logits: Tensor, observed: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """(B, C) hard targets Y and the mask M of those to trust, without gradient.

    Observed entries, present or absent, are always trusted, whatever the network predicts.

    >>> pseudo_labels(torch.tensor([[3.0, 0.0, -3.0, 9.0]]), torch.tensor([[0, 0, 0, -1]]), 0.9)
    (tensor([[1., 0., 0., 0.]]), tensor([[1., 0., 1., 1.]]))
    """
    p = losses.precise(logits.detach()).sigmoid()
    unobserved = observed == 0
    targets = torch.where(unobserved, p >= threshold, observed > 0)
    sure = ~unobserved | (p >= threshold) | (p < 1 - threshold)
    return targets.to(p.dtype), sure.to(p.dtype)


def supervised_contrast(
    fresh: Tensor,
    labels: Tensor,
    temperature: float,
    kept: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Mean over anchors a of -(1/|A|) Σ_{b in A} log( exp(s_ab) / Σ_{d ≠ a} exp(s_ad) ).

    s_ab = e_a · e_b / T, and A are the other vectors of a's class. An anchor without any such
    vector counts as 0. Both fresh and kept vectors are anchors, but only fresh ones carry a
    gradient, so of the pairs of two kept vectors only a sum is needed.

    Args:
        fresh: (M, dim) new vectors e, of length 1.
        labels: (M,) classes of the new vectors.
        temperature: Temperature T; smaller values let the most similar vectors count more.
        kept: (K, dim) vectors from earlier steps, (K,) their classes, and for each of them (K,)
            log Σ_{d ≠ a} exp(s_ad) over the other kept vectors.
    """
    if kept is None:
        kept = fresh[:0].detach(), labels[:0], fresh[:0, 0].detach()
    old, old_labels, far = kept
    vectors, labels = torch.cat([fresh, old.to(fresh.dtype)]), torch.cat([labels, old_labels])
    if len(labels) < 2:
        return 0.0 * fresh.sum()
    membership = functional.one_hot(labels).to(vectors.dtype)  # (M + K, classes)
    others = membership.sum(dim=0)[labels] - 1  # |A| of each anchor
    # Σ_{b in A} s_ab = e_a · (sum of a's class - e_a) / T: no second matrix of all pairs.
    sums = (membership.T @ vectors)[labels] - vectors
    attraction = (vectors * sums).sum(dim=1) / temperature / others.clamp(min=1)
    near = (fresh / temperature) @ vectors.T
    near.fill_diagonal_(-math.inf)
    repulsion = torch.cat(
        [
            near.logsumexp(dim=1),
            torch.logaddexp(near[:, len(fresh) :].logsumexp(dim=0), far.to(near.dtype)),
        ]
    )
    return torch.where(others > 0, repulsion - attraction, 0.0).sum() / len(labels)


def _scale(network: nn.Module, images: Tensor | Share) -> Tensor:
    """(bands,) standard deviation of the raw values by which the network normalises; 1 if none."""
    normalise = getattr(network, "normalise", None)
    if normalise is None:
        return torch.ones(images.shape[1], device=images.device)
    return cast(Tensor, normalise.std)

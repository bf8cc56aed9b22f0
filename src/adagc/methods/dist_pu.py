"""Dist-PU: positive-unlabelled learning by matching class frequencies, one class at a time.

Symbols as in the paper: s = p the scores, P_c the images with class c observed, U_c the unlabelled
ones, π_c the share of images that contain c, q the pseudo-labels, φ the mixing share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.errors import UsageError
from adagc.methods.base import Method
from adagc.methods.state import Mixup, SampleTable
from adagc.types import Batch, Losses, Progress, Task


class DistPU(Method):
    """Predict each class as often as it occurs, then self-train.

    Make each class predicted as often as it occurs, then train on mixed pseudo-labels.

    Alignment:  R = (1/C) Σ_c [ 2 π_c |mean_P(s) - 1| + |mean_U(s) - π_c| ]
    Warm-up:    L = R + μ_w H_U
    Then:       L = R + μ(t) H_U + w BCE(s̃, q̃) + μ_m H̃,    μ(t) = μ (1 - cos(π/2 · t/T))

    H_U is the mean entropy of unobserved entries, H̃ that of s̃ = s(x̃), and z̃ = φ z_i + (1 - φ) z_j
    for z in {x, q}, φ ~ Beta(α, α). A class that no image of the batch names has no first term in
    R. Pseudo-labels q are the scores of one pass over all training images at the end of warm-up,
    and from then on an image's score at its last visit; q = 1 where the class was observed.
    Entries seen to be absent have q = 0 and add ℓ⁻ = -log(1 - p) to L.

    Args:
        warm_up: Share of all epochs that are trained without pseudo-labels at the start, from 0 to
            1; 0.29 is 20 of 70 epochs.
        warm_up_entropy: Weight of the entropy of unobserved entries during warm-up (μ_w).
        entropy: Weight that the entropy of unobserved entries grows to after warm-up (μ).
        mixed: Weight of the cross-entropy of mixed images with their pseudo-labels (w).
        mixed_entropy: Weight of the entropy of the predictions for mixed images (μ_m).
        mixup: Parameter of the Beta(α, α) distribution that the mixing share φ of two images is
            drawn from (α); large values mix the two about half and half.
        form: How classes are weighted in the alignment loss R: "paper" as in the equation above,
            where no class counts more than 1 + 2 π_c; "code" divides by 2 π_c as in the released
            code, which makes a class that one image in 300 contains count 150 times as much.
        unlabelled: Which images of a batch are the unlabelled set U_c in R: "all" of them, whose
            share of class c is π_c, or only those where the class is "unobserved", whose share is
            smaller because the observed ones are taken out.
        mean_momentum: Momentum with which the mean prediction of U_c is averaged over batches, from
            0 to below 1; 0 uses each batch alone. In small batches the sign of mean_U(s) - π_c is
            mostly chance, and averaging steadies it.
        priors: Share of images that contain each class, from 0 to 1, in the order of the classes
            (π_c); by default what --priors says.
    """

    title: ClassVar[str] = "Dist-PU"
    family: ClassVar[str] = "PUL methods"
    paper: ClassVar[str] = (
        "Zhao et al., Dist-PU: Positive-Unlabeled Learning From a Label Distribution Perspective,"
        " CVPR 2022"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"priors"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "entropy": (0.002, 0.004, 0.01),
        "mixed": (1.0, 5.0),
        "mixup": (1.0, 6.0),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "warm_up": (0, 1),
        "warm_up_entropy": (0, math.inf),
        "entropy": (0, math.inf),
        "mixed": (0, math.inf),
        "mixed_entropy": (0, math.inf),
        "mixup": (0.1, math.inf),
        "mean_momentum": (0, 0.9999),
    }
    frequencies: ClassVar[frozenset[str]] = frozenset({"priors"})
    fixed: ClassVar[Mapping[str, Any]] = {"priors": None}  # it cannot do without
    keeps: ClassVar[str] = "pseudo-labels per image"
    cost: ClassVar[float] = 2.0  # a clean and a mixed pass once warm-up is over

    observed: Tensor  # (N, C) int8
    pi: Tensor  # (C,) π_c
    target: Tensor  # (C,) what mean_U(s) should be

    def __init__(
        self,
        *,
        warm_up: float = 0.29,
        warm_up_entropy: float = 0.002,
        entropy: float = 0.004,
        mixed: float = 5.0,
        mixed_entropy: float = 0.04,
        mixup: float = 6.0,
        form: Literal["paper", "code"] = "paper",
        unlabelled: Literal["all", "unobserved"] = "all",
        mean_momentum: float = 0.0,
        priors: list[float] | None = None,
    ) -> None:
        super().__init__()
        self.warm_up = warm_up
        self.warm_up_entropy = warm_up_entropy
        self.entropy = entropy
        self.mixed = mixed
        self.mixed_entropy = mixed_entropy
        self.mixup = mixup
        self.form = form
        self.unlabelled = unlabelled
        self.mean_momentum = mean_momentum
        self.priors = priors

    # -- state -------------------------------------------------------------------------------

    def check(self, task: Task) -> None:
        """Check options and task; with the option `priors` the task needs none."""
        if self.priors is None:
            super().check(task)
            return
        if len(self.priors) != len(task.classes) or not all(0 <= p <= 1 for p in self.priors):
            raise UsageError(
                f"--method.priors must be {len(task.classes)} numbers between 0 and 1, one per"
                f" class in the order {', '.join(task.classes)}"
            )
        super().check(replace(task, priors=torch.tensor(self.priors)))

    def informed(self, task: Task) -> dict[str, Any]:
        """The frequencies themselves."""
        assert task.priors is not None
        return {"priors": task.priors.tolist()}

    def setup(self, network: nn.Module, task: Task) -> None:
        """Create the table of pseudo-labels and compute what the mean of U_c should be."""
        super().setup(network, task)
        rows, columns = task.observed.shape
        target = pi = torch.tensor(self.settled(task)["priors"])
        if self.unlabelled == "unobserved":
            present = (task.observed > 0).float().mean(dim=0)
            unknown = (task.observed == 0).float().mean(dim=0)
            target = ((pi - present) / unknown.clamp(min=1 / rows)).clamp(0, 1)
        self.register_buffer("observed", task.observed.clone(), persistent=False)
        self.register_buffer("pi", pi.to(torch.float32), persistent=False)
        self.register_buffer("target", target.to(torch.float32), persistent=False)
        self.pseudo_labels = SampleTable(rows, columns)  # q
        self.means = SampleTable(1, columns)  # mean prediction of U_c, averaged over batches

    # -- one step ----------------------------------------------------------------------------

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """R and entropy on the images themselves, then pseudo-labels on the mixed images."""
        second = progress.epoch > self._warm_up_epochs(progress)
        if second:
            device = batch.observed.device
            mix = Mixup.draw(len(batch.observed), self.mixup, batch.generator, device=device)
            mixed = mix(batch.images)  # images on other ranks are read during the first pass
        logits = network(batch.images)
        unobserved = batch.observed == 0
        alignment = self._alignment(logits, batch.observed).mean()
        absent = losses.reduce(torch.where(batch.observed < 0, losses.negative(logits), 0.0))
        entropy = torch.where(unobserved, losses.entropy(logits), 0.0).sum()
        entropy = entropy / unobserved.sum().clamp(min=1)
        total = alignment + absent + self._entropy_weight(progress) * entropy
        parts = {"alignment": alignment, "absent": absent, "entropy": entropy}

        scores = known(losses.precise(logits).detach().sigmoid(), batch.observed)
        if second:
            # Without warm-up an image has no pseudo-labels at its first visit: use its scores.
            visited = self.pseudo_labels.written(batch.index).unsqueeze(1)
            q = torch.where(visited, self.pseudo_labels[batch.index], scores.float())
            blended = network(mixed)
            fit = losses.reduce(losses.binary_cross_entropy(blended, mix(q)))
            mixed_entropy = losses.reduce(losses.entropy(blended))
            total = total + self.mixed * fit + self.mixed_entropy * mixed_entropy
            parts |= {"mixed": fit, "mixed_entropy": mixed_entropy}
        self.pseudo_labels.write(batch.index, scores)  # for the next visit
        return Losses(total, parts)

    def _alignment(self, logits: Tensor, observed: Tensor) -> Tensor:
        """(C,) alignment loss of every class; its mean is R."""
        z = losses.precise(logits)
        labelled = observed > 0
        short = torch.where(labelled, (-z).sigmoid(), 0.0).sum(dim=0)
        short = short / labelled.sum(dim=0).clamp(min=1)  # |mean_P(s) - 1|, 0 if P is empty
        members = torch.ones_like(labelled) if self.unlabelled == "all" else observed == 0
        count = members.sum(dim=0)
        mean = torch.where(members, z.sigmoid(), 0.0).sum(dim=0) / count.clamp(min=1)
        mean = torch.where(count > 0, mean, self.target)
        gap = (self._averaged(mean) - self.target).abs()
        if self.form == "paper":
            return 2 * self.pi * short + gap
        rarest = 1 / len(self.observed)  # a class without any image must not divide by 0
        return short + gap / (2 * self.pi.clamp(min=rarest))

    def _averaged(self, mean: Tensor) -> Tensor:
        """The mean over batches in value, but with the gradient of this batch's mean.

        The sign of its gap to the target then changes less from batch to batch.
        """
        if self.mean_momentum == 0:
            return mean
        first = torch.zeros(1, dtype=torch.int64, device=mean.device)
        new = self.means.average(first, mean.unsqueeze(0), self.mean_momentum, first=True)
        return mean + (new.squeeze(0) - mean).detach()

    def _entropy_weight(self, progress: Progress) -> float:
        """Weight of the entropy in this epoch: μ_w in warm-up, μ(t) in epoch t after it."""
        start = self._warm_up_epochs(progress)
        if progress.epoch <= start:
            return self.warm_up_entropy
        done = min(1.0, (progress.epoch - start - 1) / max(1, progress.epochs - start))
        return self.entropy * (1 - math.cos(math.pi / 2 * done))

    def _warm_up_epochs(self, progress: Progress) -> int:
        return round(self.warm_up * progress.epochs)

    # -- pseudo-labels -----------------------------------------------------------------------

    def reviews(self, progress: Progress) -> bool:
        """True after the last epoch of warm-up, unless training ends with it."""
        return progress.epoch == self._warm_up_epochs(progress) < progress.epochs

    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Take the predictions as the first pseudo-labels of all images."""
        rows = torch.arange(len(probabilities), device=probabilities.device)
        self.pseudo_labels.write(rows, known(probabilities, self.observed))

    def estimates(self) -> Tensor:
        """(N, C) the pseudo-labels q; during warm-up the scores of each image's last visit."""
        return self.pseudo_labels.values


def known(scores: Tensor, observed: Tensor) -> Tensor:
    """Scores with 1 where a class was observed and 0 where it was seen to be absent.

    >>> known(torch.tensor([[0.3, 0.3, 0.3]]), torch.tensor([[1, 0, -1]]))
    tensor([[1.0000, 0.3000, 0.0000]])
    """
    return torch.where(observed == 0, scores, (observed > 0).to(scores.dtype))

"""RCML: two networks that choose each other's negatives.

Symbols: f the network, g its peer, z logits, p = σ(z), F early features, k an observed positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.errors import AdagcError
from adagc.methods.base import Method, negative_share, positives
from adagc.methods.entropy_maximisation import lowest
from adagc.ranks import Share, spread
from adagc.types import Batch, Losses, Progress, Task


class RCML(Method):
    """Two networks; each drops negatives that the other doubts.

    Doubt:      e_ic = max(0, 1 + 2 (p_ic - p_ik)) where y_ic = 0, k observed in image i; over
                several such k the root of the sum of squares
    Selection:  of the unobserved entries of a class in a batch, f learns the share R with the
                lowest e according to g, and g that according to f
    Loss:       L = L_f + L_g + (1/C) [ λ_z MMD(z_f, z_g) - λ_F MMD(F_f, F_g) ]
    with        L_f = (1/BC) Σ_kept [ y ℓ⁺ + (1 - y) ℓ⁻ ],   dropped entries counting 0
                MMD(x, y) = mean K_xx + mean K_yy - 2 mean K_xy,   K_ab = exp(-|a - b|² / σ)

    The two networks should agree in their predictions (λ_z) but use different features (λ_F), so
    that they do not repeat each other's mistakes. The paper handles missing and wrong labels;
    single positives have only missing ones, so only that error is used, and entries are selected
    by class instead of by image. The paper sums cross-entropy over classes; here it is the mean
    over B C, so the discrepancies are divided by C too. Entries that were observed, present or
    absent, are never dropped.

    Args:
        keep: Share of the unobserved entries of a class that are learnt as negatives once
            `ramp_epochs` are over, from 0 to 1 (R). 1 - R should be the share of unobserved labels
            that are in truth positive: (k - 1) / (C - 1) if images have k of C labels on average.
            By default it follows from --priors. With --priors published it is the round number 0.8;
            the paper keeps .6, but of images instead of entries.
        ramp_epochs: Number of epochs at the start over which the kept share falls from 1 to `keep`,
            because an untrained network doubts entries at random.
        agreement: How strongly the logits of the two networks are pulled together (λ_z).
        diversity: How strongly the early features of the two networks are pushed apart (λ_F).
        sigma: Width of the Gaussian kernel that compares the two networks (σ), as a squared
            distance. The default is that of the released code, with which the two discrepancies
            matter little; none takes the median squared distance in the batch, which makes them
            matter for features of any scale.
        features: Which early features are compared: "pooled" averages maps to 8 x 8 positions,
            "whole" takes maps as they are, as the released code does; that needs much more memory
            on large images.
    """

    title: ClassVar[str] = "RCML"
    family: ClassVar[str] = "RS-specific methods"
    paper: ClassVar[str] = (
        "Aksoy et al., Multi-Label Noise Robust Collaborative Learning for Remote Sensing Image"
        " Classification, TNNLS 2024"
    )
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"keep": (0.6, 0.7, 0.8, 0.9)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "keep": (0, 1),
        "ramp_epochs": (0, math.inf),
        "agreement": (0, math.inf),
        "diversity": (0, math.inf),
        "sigma": (1e-12, math.inf),
    }
    trial_epochs: ClassVar[int | None] = 20  # `keep` is reached after the first ten only
    frequencies: ClassVar[frozenset[str]] = frozenset({"keep"})
    fixed: ClassVar[Mapping[str, Any]] = {"keep": 0.8}
    keeps: ClassVar[str] = "a second network"
    cost: ClassVar[float] = 2.0

    def __init__(
        self,
        *,
        keep: float | None = None,
        ramp_epochs: int = 10,
        agreement: float = 0.1,
        diversity: float = 1.0,
        sigma: float | None = 1e4,
        features: Literal["pooled", "whole"] = "pooled",
    ) -> None:
        super().__init__()
        self.keep = keep
        self.ramp_epochs = ramp_epochs
        self.agreement = agreement
        self.diversity = diversity
        self.sigma = sigma
        self.features = features

    def informed(self, task: Task) -> dict[str, Any]:
        """Kept are as many of the unobserved entries as are negative."""
        return {"keep": negative_share(task)}

    def setup(self, network: nn.Module, task: Task) -> None:
        """Build the second network (the peer) from another seed."""
        super().setup(network, task)
        self.kept: float = self.settled(task)["keep"]
        if task.fresh is None:
            raise AdagcError(
                "RCML trains a second network, which this task cannot build: set Task.fresh to a"
                " function that makes one from a seed"
            )
        if not hasattr(network, "logits_and_early_features"):
            raise AdagcError(
                "RCML compares early features, which this network does not give: use an"
                " adagc.models.Classifier, or add logits_and_early_features to yours"
            )
        self.peer = task.fresh(task.seed + 1)

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The parameters of both networks."""
        return [*super().parameter_groups(network, lr), *super().parameter_groups(self.peer, lr)]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Each network's loss on the entries the other kept, and the discrepancies of the two.

        The gradient of the discrepancies reaches both networks.
        """
        z_f, early_f = self._run(network, batch.images)
        z_g, early_g = self._run(self.peer, batch.images)
        of_network = self._learn(z_f, z_g, batch, progress)
        of_peer = self._learn(z_g, z_f, batch, progress)
        logit_gap = discrepancy(z_f, z_g, self.sigma)
        feature_gap = discrepancy(early_f, early_g, self.sigma)
        gaps = self.agreement * logit_gap - self.diversity * feature_gap
        total = of_network + of_peer + gaps / z_f.shape[1]
        return Losses(
            total,
            {
                "network": of_network,
                "peer": of_peer,
                "logit_gap": logit_gap,
                "feature_gap": feature_gap,
            },
        )

    def _run(self, network: nn.Module, images: Tensor | Share) -> tuple[Tensor, ...]:
        """Logits and early features of the whole batch; each rank computes a part of them."""
        function = cast(Callable[..., tuple[Tensor, ...]], network.logits_and_early_features)
        return spread(
            partial(function, whole=True) if self.features == "whole" else function, images
        )

    def _learn(self, logits: Tensor, judge: Tensor, batch: Batch, progress: Progress) -> Tensor:
        """Cross-entropy of one network's logits on the entries that the other's do not doubt."""
        doubt = ranking_errors(losses.precise(judge).detach().sigmoid(), batch.observed)
        unobserved = batch.observed == 0
        kept = undoubted(doubt, unobserved, self._share(progress), batch.generator) | ~unobserved
        matrix = losses.binary_cross_entropy(logits, positives(batch.observed))
        return losses.reduce(torch.where(kept, matrix, 0.0))

    def _share(self, progress: Progress) -> float:
        """Share of unobserved entries that are kept (R): 1 in epoch 1, `keep` after the ramp."""
        if self.ramp_epochs <= 0:
            return self.kept
        return 1 - (1 - self.kept) * min(1.0, (progress.epoch - 1) / self.ramp_epochs)

    def reported(self, network: nn.Module) -> dict[str, nn.Module]:
        """The network, which is deployed, and its peer, for a second row in tables."""
        return {"network": network, "peer": self.peer}


def ranking_errors(probabilities: Tensor, observed: Tensor) -> Tensor:
    """(B, C) e: how far an unobserved class is ranked above the observed ones; elsewhere 0.

    An image without any observed positive has nothing to compare with: all its errors are 0.

    Args:
        probabilities: (B, C) p.
        observed: (B, C) -1/0/+1.
    """
    most = max(1, int((observed > 0).sum(dim=1).max()))
    # For each image the columns of its observed positives first, padded with other columns to the
    # largest number of positives in the batch; `present` is 0 for the padding.
    present, columns = positives(observed).topk(most, dim=1)
    p_k = probabilities.gather(1, columns)
    e = (1 + 2 * (probabilities.unsqueeze(2) - p_k.unsqueeze(1))).clamp(min=0)  # (B, C, most)
    e = (e.square() * present.unsqueeze(1)).sum(dim=2).sqrt()
    return torch.where(observed == 0, e, torch.zeros_like(e))


def undoubted(errors: Tensor, among: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """(B, C) bool: of the entries in `among`, the `share` of each column with the lowest errors.

    Equal errors, as all are at the start, are ranked at random: ranked by row, the same images
    would be dropped for every class and from both networks.
    """
    shuffled = torch.rand(errors.shape, generator=generator).argsort(dim=0).to(errors.device)
    count = (share * among.sum(dim=0)).round()
    chosen = lowest(errors.gather(0, shuffled), among.gather(0, shuffled), count)
    return torch.empty_like(chosen).scatter_(0, shuffled, chosen)


def discrepancy(x: Tensor, y: Tensor, sigma: float | None = None) -> Tensor:
    """The biased MMD of two sets of B rows with a Gaussian kernel, between 0 and 2.

    Args:
        x: (B, K).
        y: (B, K).
        sigma: Width; None takes the median squared distance of all pairs, without gradient.
    """
    with torch.autocast(x.device.type, enabled=False):  # distances need all digits
        rows = torch.cat([losses.precise(x), losses.precise(y)])
        size = rows.detach().square().sum(dim=1).mean()
        rows = rows - rows.detach().mean(dim=0)  # same distances, smaller squares to subtract
        squares = rows.square().sum(dim=1)
        distances = (squares.unsqueeze(1) + squares - 2 * rows @ rows.T).clamp(min=0)
        width = _median(distances.detach(), size) if sigma is None else sigma
        kernel = (-distances / width).exp()
        sign = torch.ones_like(squares)
        sign[len(x) :] = -1
        return sign @ kernel @ sign / len(x) ** 2


def _median(distances: Tensor, size: Tensor) -> Tensor:
    """Median squared distance of all pairs of rows.

    It is not below the rounding error that equal rows would have, given the mean squared norm of
    the rows, `size`.
    """
    count = len(distances)
    rows, columns = torch.triu_indices(count, count, offset=1, device=distances.device)
    floor = (1e-6 * size).clamp(min=1e-12)
    return torch.maximum(distances[rows, columns].median(), floor)

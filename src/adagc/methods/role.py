"""ROLE: the network and a matrix of learnable labels are trained on each other.

Symbols: Θ (N, C) learnable logits, G = σ(Θ) the estimated labels, g the rows of a batch, p = σ(z).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.assume_negative import COLE
from adagc.methods.base import Method
from adagc.types import Batch, Losses, Progress, Task

_SURE = 0.995  # initial estimated label of an observed class


class Role(Method):
    """Train network and estimated labels, each on the other.

    Train the network and estimated labels together, each with the other as target.

    L      = ½ L(p | g) + ½ L(g | p)
    L(a|b) = (1/BC) Σ_P -log a + (1/BC) Σ CE(sg(b), a) + ((k̂(a) - k) / C)²

    with CE(b, a) = -b log a - (1 - b) log(1 - a) over all entries, sg the stop-gradient and k̂ the
    batch mean of Σ_c a_c. Entries seen to be absent add -log(1 - a) to the first sum. Adam updates
    all estimates in every step: those of images outside the batch move on by momentum, which makes
    up most of their change in an epoch.

    Args:
        expected: Expected mean number of labels per image (k); by default what --priors says, the
            sum of the frequencies of all classes. With --priors published it is 1, no more than
            the one observed label; ROLE-oracle takes the true mean.
        rate: Learning rate of the estimated labels as a multiple of the network's. An image gives
            its estimates a gradient only once per epoch, so small training sets may need a larger
            value.
        half_width: Estimated labels of unobserved entries start at random between
            0.5 - half_width and 0.5 + half_width, uniformly distributed in their logits.
    """

    title: ClassVar[str] = "ROLE"
    family: ClassVar[str] = "SPML methods"
    paper: ClassVar[str] = COLE
    keeps: ClassVar[str] = "estimated labels per image, trained"
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "expected": (1.0, 1.5, 2.0, 3.0, 5.0),
        "rate": (10.0, 30.0, 100.0),
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "expected": (0, math.inf),
        "rate": (0, math.inf),
        "half_width": (0, 0.49),
    }
    frequencies: ClassVar[frozenset[str]] = frozenset({"expected"})
    fixed: ClassVar[Mapping[str, Any]] = {"expected": 1.0}
    unobserved: Tensor  # (N, C) bool

    def __init__(
        self, *, expected: float | None = None, rate: float = 10.0, half_width: float = 0.1
    ) -> None:
        super().__init__()
        self.expected = expected
        self.rate = rate
        self.half_width = half_width

    def setup(self, network: nn.Module, task: Task) -> None:
        """Create Θ: close to certain where a label was observed, near 0.5 elsewhere."""
        super().setup(network, task)
        self.k: float = self.settled(task)["expected"]
        observed = task.observed.cpu()
        generator = torch.Generator().manual_seed(task.seed)
        q = _logit(0.5 + self.half_width)
        undecided = q * (2 * torch.rand(observed.shape, generator=generator) - 1)
        sure = _logit(_SURE) * observed.to(torch.float32)
        self.theta = nn.Parameter(torch.where(observed == 0, undecided, sure))
        self.register_buffer("unobserved", observed == 0, persistent=False)

    def informed(self, task: Task) -> dict[str, Any]:
        """The sum of the frequencies is the mean number of labels."""
        assert task.priors is not None
        return {"expected": float(task.priors.sum())}

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The network, and Θ with its own learning rate.

        Θ has no weight decay and no clipping, which would distort the estimated labels.
        """
        estimates = {
            "params": [self.theta], "lr": lr * self.rate, "weight_decay": 0.0, "clip": False,
        }  # fmt: skip
        return [*super().parameter_groups(network, lr), estimates]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """The mean of L(p | g) and L(g | p), each with a gradient into its first argument only."""
        z = network(batch.images)
        theta = self.theta[batch.index]
        of_network = self._half(z, theta, batch.observed)
        of_estimates = self._half(theta, z, batch.observed)
        total = 0.5 * of_network + 0.5 * of_estimates
        return Losses(total, {"network": of_network, "estimates": of_estimates})

    def _half(self, logits: Tensor, other: Tensor, observed: Tensor) -> Tensor:
        """L(a | b) from the logits of a and those of b (`other`); no gradient reaches b."""
        b = losses.precise(other).detach().sigmoid()
        known = torch.where(observed > 0, losses.positive(logits), losses.negative(logits))
        known = torch.where(observed != 0, known, 0.0)
        agreement = losses.binary_cross_entropy(logits, b)
        gap = losses.expected_positives_gap(logits, self.k)
        return losses.reduce(known) + losses.reduce(agreement) + gap

    def estimates(self) -> Tensor:
        """(N, C) the estimated labels G, probabilities between 0 and 1."""
        return self.theta.detach().sigmoid()

    def status(self) -> dict[str, Any]:
        """Mean estimated label of the unobserved entries; None if all are observed."""
        if not bool(self.unobserved.any()):
            return {"mean_estimate": None}
        return {"mean_estimate": float(self.estimates()[self.unobserved].mean())}


class RoleOracle(Role):
    """ROLE as published: told how many labels images have.

    As ROLE, with k the true mean number of labels of the training images, so that this method
    needs their clean labels. ROLE without this knowledge is the method "ROLE".

    Args:
        rate: Learning rate of the estimated labels as a multiple of the network's. An image gives
            its estimates a gradient only once per epoch, so small training sets may need a larger
            value.
        half_width: Estimated labels of unobserved entries start at random between
            0.5 - half_width and 0.5 + half_width, uniformly distributed in their logits.
    """

    title: ClassVar[str] = "ROLE-oracle"
    needs: ClassVar[frozenset[str]] = frozenset({"priors"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": Role.grid["rate"]}
    frequencies: ClassVar[frozenset[str]] = frozenset()
    fixed: ClassVar[Mapping[str, Any]] = {}
    oracle: ClassVar[bool] = True

    def __init__(self, *, rate: float = 10.0, half_width: float = 0.1) -> None:
        super().__init__(rate=rate, half_width=half_width)


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))

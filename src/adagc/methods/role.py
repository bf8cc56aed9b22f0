"""ROLE: the network and a learnable label of every entry teach each other.

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

_SURE = 0.995  # what an estimate starts at where somebody saw the class


class Role(Method):
    """Estimate the labels along with the network, each learning from the other.

    L      = ½ L(p | g) + ½ L(g | p)
    L(a|b) = (1/BC) Σ_P -log a + (1/BC) Σ CE(sg(b), a) + ((k̂(a) - k) / C)²

    with CE(b, a) = -b log a - (1 - b) log(1 - a) over all entries, sg the stop-gradient and k̂ the
    batch mean of Σ_c a_c. Entries seen to be absent add -log(1 - a) to the first sum. Adam is
    dense: an image's estimates drift on by momentum while other images are trained, which is most
    of the way they make in an epoch.

    Args:
        expected: k, the number of labels an image is believed to have. 1 claims no more than what
            was observed; ROLE-oracle takes the true mean.
        rate: Learning rate of the estimates as a multiple of the network's. Estimates move once
            per epoch, so small training sets may want more.
        half_width: Estimates of unobserved entries start between .5 - half_width and
            .5 + half_width, uniformly in their logits.
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
    unobserved: Tensor  # (N, C) bool

    def __init__(
        self, *, expected: float = 1.0, rate: float = 10.0, half_width: float = 0.1
    ) -> None:
        super().__init__()
        self.expected = expected
        self.rate = rate
        self.half_width = half_width

    def setup(self, network: nn.Module, task: Task) -> None:
        """Open Θ: sure of what was observed, undecided elsewhere."""
        super().setup(network, task)
        self.k = self._cardinality(task)
        observed = task.observed.cpu()
        generator = torch.Generator().manual_seed(task.seed)
        q = _logit(0.5 + self.half_width)
        undecided = q * (2 * torch.rand(observed.shape, generator=generator) - 1)
        sure = _logit(_SURE) * observed.to(torch.float32)
        self.theta = nn.Parameter(torch.where(observed == 0, undecided, sure))
        self.register_buffer("unobserved", observed == 0, persistent=False)

    def _cardinality(self, task: Task) -> float:
        """The number k of labels per image."""
        return self.expected

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The network, and Θ at its own pace; decay or clipping would distort labels."""
        estimates = {
            "params": [self.theta], "lr": lr * self.rate, "weight_decay": 0.0, "clip": False,
        }  # fmt: skip
        return [*super().parameter_groups(network, lr), estimates]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Both halves, with stop-gradients between them."""
        z = network(batch.images)
        theta = self.theta[batch.index]
        of_network = self._half(z, theta, batch.observed)
        of_estimates = self._half(theta, z, batch.observed)
        total = 0.5 * of_network + 0.5 * of_estimates
        return Losses(total, {"network": of_network, "estimates": of_estimates})

    def _half(self, logits: Tensor, other: Tensor, observed: Tensor) -> Tensor:
        """L(a | b) from the logits of a and b; no gradient reaches b."""
        b = losses.precise(other).detach().sigmoid()
        known = torch.where(observed > 0, losses.positive(logits), losses.negative(logits))
        known = torch.where(observed != 0, known, 0.0)
        agreement = losses.binary_cross_entropy(logits, b)
        gap = losses.expected_positives_gap(logits, self.k)
        return losses.reduce(known) + losses.reduce(agreement) + gap

    def estimates(self) -> Tensor:
        """The matrix G."""
        return self.theta.detach().sigmoid()

    def status(self) -> dict[str, Any]:
        """How far the estimates of unobserved entries have come."""
        if not bool(self.unobserved.any()):
            return {"mean_estimate": None}
        return {"mean_estimate": float(self.estimates()[self.unobserved].mean())}


class RoleOracle(Role):
    """ROLE that is told how many labels an image has on average.

    As ROLE, with k the mean number of labels of the training images, which makes this a method
    with a prior.

    Args:
        rate: Learning rate of the estimates as a multiple of the network's. Estimates move once
            per epoch, so small training sets may want more.
        half_width: Estimates of unobserved entries start between .5 - half_width and
            .5 + half_width, uniformly in their logits.
    """

    title: ClassVar[str] = "ROLE-oracle"
    needs: ClassVar[frozenset[str]] = frozenset({"priors"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": Role.grid["rate"]}

    def __init__(self, *, rate: float = 10.0, half_width: float = 0.1) -> None:
        super().__init__(rate=rate, half_width=half_width)

    def _cardinality(self, task: Task) -> float:
        assert task.priors is not None  # check() made sure
        return float(task.priors.sum())


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))

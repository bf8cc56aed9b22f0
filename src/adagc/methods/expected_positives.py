"""EPR: the observed positives, and a prior on how many labels an image has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from adagc import losses
from adagc.methods.assume_negative import COLE
from adagc.methods.base import Method, positives
from adagc.types import Batch, Losses, Progress, Task


class ExpectedPositives(Method):
    """Fit observed positives and the expected number of labels.

    Train on the observed positives and on the expected number of labels per image.

    L = (1/BC) Σ_P ℓ⁺ + λ ((k̂ - k) / C)², k̂ the batch mean of Σ_c p_c.

    Nothing says which entries are negative: the network decides which classes make up the expected
    number.

    Args:
        weight: Weight of the penalty on predicting more or fewer labels per image than expected
            (λ).
        expected: Expected mean number of labels per image (k); by default what --priors says, the
            sum of the frequencies of all classes.
    """

    title: ClassVar[str] = "EPR"
    family: ClassVar[str] = "Baseline methods"
    paper: ClassVar[str] = COLE
    needs: ClassVar[frozenset[str]] = frozenset({"priors"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (0.3, 1.0, 3.0)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weight": (0, math.inf),
        "expected": (0, math.inf),
    }
    frequencies: ClassVar[frozenset[str]] = frozenset({"expected"})
    fixed: ClassVar[Mapping[str, Any]] = {"expected": None}  # it cannot do without

    def __init__(self, *, weight: float = 1.0, expected: float | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.expected = expected

    def check(self, task: Task) -> None:
        """Check options and task; with the option `expected` the task needs no prior."""
        given = None if self.expected is None else torch.empty(0)
        super().check(task if given is None else replace(task, priors=given))

    def informed(self, task: Task) -> dict[str, Any]:
        """The sum of the frequencies is the mean number of labels."""
        assert task.priors is not None
        return {"expected": float(task.priors.sum())}

    def setup(self, network: nn.Module, task: Task) -> None:
        """Set k, from the option `expected` or else from the task's priors."""
        super().setup(network, task)
        self.k: float = self.settled(task)["expected"]

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy of the observed positives, and the penalty on the distance from k."""
        logits = network(batch.images)
        positive = losses.reduce(positives(batch.observed) * losses.positive(logits))
        gap = losses.expected_positives_gap(logits, self.k)
        return Losses(positive + self.weight * gap, {"positive": positive, "gap": gap})

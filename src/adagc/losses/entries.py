"""Losses of single entries: functions of logits z that return (B, C); `reduce` takes the mean.

Logarithms of p = sigmoid(z) are computed from z directly, never from p, so no epsilon is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus

# log1p(-t) must stay finite; a pseudo-label this close to 1 is certain for every purpose.
_MOST_CERTAIN = 1.0 - 1e-6


def reduce(matrix: Tensor) -> Tensor:
    """Mean over all B * C entries, including those masked to 0.

    Terms that are added up must all be reduced like this: the threshold 1 / (λ - 1) of gradient
    calibration with weight λ holds only then.
    """
    return matrix.mean()


def precise(logits: Tensor) -> Tensor:
    """Logits in at least float32, also under mixed precision."""
    return logits if logits.dtype == torch.float64 else logits.float()


def positive(logits: Tensor) -> Tensor:
    """(B, C) loss of a positive label, ℓ⁺ = -log p."""
    return softplus(-precise(logits))


def negative(logits: Tensor) -> Tensor:
    """(B, C) loss of a negative label, ℓ⁻ = -log(1 - p)."""
    return softplus(precise(logits))


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy y ℓ⁺ + (1 - y) ℓ⁻ for hard or soft targets y.

    >>> binary_cross_entropy(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    tensor([[0.6931, 0.6931]])
    """
    z = precise(logits)
    return binary_cross_entropy_with_logits(z, targets.to(z.dtype), reduction="none")


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -p log p - (1 - p) log(1 - p), in nats.

    >>> entropy(torch.zeros(1, 1))
    tensor([[0.6931]])
    """
    # The entropy is the same for z and -z, and with |z| no two terms cancel.
    z = precise(logits).abs()
    return softplus(-z) + z * (-z).sigmoid()


def gradient_calibration(logits: Tensor, pseudo_labels: Tensor, observed: Tensor) -> Tensor:
    """(B, C) entries I(y = 0) log(1 - p t) of the paper's regulariser.

    Written as logaddexp(log(1 - p), log(1 - t) + log p), which is exact for any logit and keeps
    the gradient with respect to z, -t p (1 - p) / (1 - p t), between -1 and 0.

    Args:
        logits: (B, C) z.
        pseudo_labels: (B, C) t in [0, 1]; no gradient flows into them.
        observed: (B, C) y; entries equal to 0 are calibrated, all others are 0 in the result.
    """
    z = precise(logits)
    t = pseudo_labels.detach().to(z.dtype).clamp(max=_MOST_CERTAIN)
    matrix = torch.logaddexp(logsigmoid(-z), torch.log1p(-t) + logsigmoid(z))
    return torch.where(observed == 0, matrix, torch.zeros_like(matrix))


def expected_positives_gap(logits: Tensor, expected: float) -> Tensor:
    """((k̂ - k) / C)², with k̂ the mean number of predicted positives per image of the batch."""
    probabilities = precise(logits).sigmoid()
    predicted = probabilities.sum(dim=1).mean()
    return ((predicted - expected) / logits.shape[1]) ** 2

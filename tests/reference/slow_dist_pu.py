"""Dist-PU class by class and entry by entry, with sixty-digit decimals for real numbers."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from reference.slow_losses import DIGITS, Matrix, cross_entropy, mean, sigmoid


def alignment(
    z: Matrix,
    y: Matrix,
    pi: list[float],
    *,
    form: str = "paper",
    everyone: bool = True,
    targets: list[float] | None = None,
) -> list[float]:
    """R_c of every class; `targets` replaces π_c as what the mean of U_c should be."""
    found = []
    with localcontext() as context:
        context.prec = DIGITS
        for c in range(len(z[0])):
            labelled = [sigmoid(z[i][c]) for i in range(len(z)) if y[i][c] == 1]
            unlabelled = [sigmoid(z[i][c]) for i in range(len(z)) if everyone or y[i][c] == 0]
            prior = Decimal(pi[c])
            target = prior if targets is None else Decimal(targets[c])
            first = abs(sum(labelled) / len(labelled) - 1) if labelled else Decimal(0)
            second = abs(sum(unlabelled) / len(unlabelled) - target) if unlabelled else Decimal(0)
            if form == "paper":
                found.append(float(2 * prior * first + second))
            else:
                found.append(float(first + second / (2 * prior)))
    return found


def corrected(pi: float, column: list[int]) -> float:
    """How often a class should occur among the images that say nothing of it, by counting."""
    present = pi * len(column)  # images that contain it
    left = present - sum(1 for v in column if v == 1)
    return left / sum(1 for v in column if v == 0)


def entropies(z: Matrix) -> list[list[Decimal]]:
    with localcontext() as context:
        context.prec = DIGITS
        return [[-p * p.ln() - (1 - p) * (1 - p).ln() for p in map(sigmoid, row)] for row in z]


def entropy_of_unobserved(z: Matrix, y: Matrix) -> float:
    every = entropies(z)
    wanted = [every[i][c] for i, row in enumerate(y) for c, v in enumerate(row) if v == 0]
    return float(sum(wanted) / len(wanted)) if wanted else 0.0


def absent(z: Matrix, y: Matrix) -> float:
    """-log(1 - p) of the entries seen to be absent, over all entries."""
    as_negatives = cross_entropy(z, [[0] * len(z[0])] * len(z))
    chosen = [
        [as_negatives[i][c] if v == -1 else Decimal(0) for c, v in enumerate(row)]
        for i, row in enumerate(y)
    ]
    return mean(chosen)


def entropy_weight(epoch: int, warm_up: int, epochs: int, weight: float) -> float:
    """μ (1 - cos(π/2 · t/T)), t counted from 0 in the first epoch after warm-up."""
    t, total = epoch - warm_up - 1, epochs - warm_up
    return weight * (1 - math.cos(math.pi / 2 * t / total))


def mixed_rows(values: Matrix, partner: list[int], share: list[float]) -> list[list[float]]:
    return [
        [phi * a + (1 - phi) * b for a, b in zip(values[i], values[j], strict=True)]
        for i, (j, phi) in enumerate(zip(partner, share, strict=True))
    ]


def mixed_cross_entropy(z: Matrix, q: Matrix, partner: list[int], share: list[float]) -> float:
    """Mean of φ BCE(s̃, q_i) + (1 - φ) BCE(s̃, q_j): losses are mixed, not labels."""
    own, other = cross_entropy(z, q), cross_entropy(z, [q[j] for j in partner])
    both = [
        [Decimal(phi) * a + (1 - Decimal(phi)) * b for a, b in zip(x, y, strict=True)]
        for x, y, phi in zip(own, other, share, strict=True)
    ]
    return mean(both)

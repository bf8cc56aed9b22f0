"""RCML pair by pair in plain Python."""

from __future__ import annotations

import math
from statistics import median_low

from reference.slow_losses import Matrix, cross_entropy


def ranking_errors(p: Matrix, y: Matrix) -> list[list[float]]:
    """The root of Σ_k max(0, 1 + 2 (p_l - p_k))² over the observed k, for every unobserved l."""
    found = []
    for probabilities, labels in zip(p, y, strict=True):
        there = [k for k, v in enumerate(labels) if v == 1]
        row = []
        for label, v in enumerate(labels):
            squares = [
                max(0.0, 1 + 2 * (probabilities[label] - probabilities[k])) ** 2 for k in there
            ]
            row.append(math.sqrt(sum(squares)) if v == 0 else 0.0)
        found.append(row)
    return found


def kept(errors: Matrix, y: Matrix, share: float) -> list[list[bool]]:
    """Everything observed, and per class the share of the rest with the lowest errors (no ties)."""
    rows, columns = len(y), len(y[0])
    found = [[y[i][c] != 0 for c in range(columns)] for i in range(rows)]
    for c in range(columns):
        unobserved = sorted((i for i in range(rows) if y[i][c] == 0), key=lambda i: errors[i][c])
        for i in unobserved[: round(share * len(unobserved))]:
            found[i][c] = True
    return found


def loss(z: Matrix, y: Matrix, mask: list[list[bool]]) -> float:
    """Cross-entropy of kept entries over the number of all entries."""
    targets = [[int(v == 1) for v in row] for row in y]
    every = cross_entropy(z, targets)
    rows, columns = len(z), len(z[0])
    total = sum(every[i][c] for i in range(rows) for c in range(columns) if mask[i][c])
    return float(total) / (rows * columns)


def squared(a: list[float], b: list[float]) -> float:
    return math.fsum((u - v) ** 2 for u, v in zip(a, b, strict=True))


def discrepancy(x: Matrix, y: Matrix, sigma: float | None = None) -> float:
    if sigma is None:
        every = [*x, *y]
        pairs = [(a, b) for a in range(len(every)) for b in range(a)]
        sigma = median_low(squared(every[a], every[b]) for a, b in pairs)

    def kernel(one: Matrix, other: Matrix) -> float:
        values = [math.exp(-squared(a, b) / sigma) for a in one for b in other]
        return math.fsum(values) / len(values)

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)

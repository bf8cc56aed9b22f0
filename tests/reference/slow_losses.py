"""Losses entry by entry in plain Python, straight from their definitions with exact logarithms.

`decimal` arithmetic with sixty digits stands in for real numbers: no trick of the fast version
(softplus, logaddexp, clamping) is repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

Matrix = Sequence[Sequence[float]]
DIGITS = 60


def sigmoid(z: float) -> Decimal:
    return 1 / (1 + (-Decimal(z)).exp())


def mean(matrix: Sequence[Sequence[Decimal]]) -> float:
    entries = [entry for row in matrix for entry in row]
    return float(sum(entries) / len(entries))


def _entries(z: Matrix, rule) -> list[list[Decimal]]:
    with localcontext() as context:
        context.prec = DIGITS
        return [
            [rule(i, c, sigmoid(value)) for c, value in enumerate(row)] for i, row in enumerate(z)
        ]


def cross_entropy(z: Matrix, y: Matrix) -> list[list[Decimal]]:
    def rule(i: int, c: int, p: Decimal) -> Decimal:
        target = Decimal(y[i][c])
        return -target * p.ln() - (1 - target) * (1 - p).ln()

    return _entries(z, rule)


def weighted_negatives(z: Matrix, y: Matrix, w: float) -> list[list[Decimal]]:
    def rule(i: int, c: int, p: Decimal) -> Decimal:
        return -p.ln() if y[i][c] == 1 else -Decimal(w) * (1 - p).ln()

    return _entries(z, rule)


def known_entries(z: Matrix, y: Matrix, truth: Matrix) -> list[list[Decimal]]:
    """An observed positive pulls up, a true negative down, a missed positive does nothing."""

    def rule(i: int, c: int, p: Decimal) -> Decimal:
        if y[i][c] == 1:
            return -p.ln()
        return -(1 - p).ln() if truth[i][c] == 0 else Decimal(0)

    return _entries(z, rule)


def calibration(z: Matrix, t: Matrix, y: Matrix) -> list[list[Decimal]]:
    def rule(i: int, c: int, p: Decimal) -> Decimal:
        return (1 - p * Decimal(t[i][c])).ln() if y[i][c] == 0 else Decimal(0)

    return _entries(z, rule)


def calibration_gradient(z: float, t: float) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        p = sigmoid(z)
        return float(-Decimal(t) * p * (1 - p) / (1 - p * Decimal(t)))


def expected_positives(z: Matrix, y: Matrix, k: float, weight: float = 1.0) -> tuple[float, float]:
    """(k̂, loss)."""
    with localcontext() as context:
        context.prec = DIGITS
        count = Decimal(0)
        positive = Decimal(0)
        for i, row in enumerate(z):
            for c, value in enumerate(row):
                p = sigmoid(value)
                count += p
                if y[i][c] == 1:
                    positive -= p.ln()
        rows, columns = len(z), len(z[0])
        k_hat = count / rows
        gap = ((k_hat - Decimal(k)) / columns) ** 2
        return float(k_hat), float(positive / (rows * columns) + Decimal(weight) * gap)

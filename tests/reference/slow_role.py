"""ROLE entry by entry in plain Python, and Adam for one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

from reference.slow_losses import DIGITS, Matrix, sigmoid


def half(a: Matrix, b: Matrix, y: Matrix, k: float) -> float:
    """L(a | b) of two matrices of logits."""
    rows, columns = len(a), len(a[0])
    with localcontext() as context:
        context.prec = DIGITS
        known = agreement = count = Decimal(0)
        for i in range(rows):
            for c in range(columns):
                p, target = sigmoid(a[i][c]), sigmoid(b[i][c])
                if y[i][c] == 1:
                    known -= p.ln()
                elif y[i][c] == -1:
                    known -= (1 - p).ln()
                agreement -= target * p.ln() + (1 - target) * (1 - p).ln()
                count += p
        gap = ((count / rows - Decimal(k)) / columns) ** 2
        return float((known + agreement) / (rows * columns) + gap)


def gradient(a: Matrix, b: Matrix, y: Matrix, k: float) -> list[list[float]]:
    """Of L(a | b) with respect to the logits of a, with b a constant."""
    rows, columns = len(a), len(a[0])
    with localcontext() as context:
        context.prec = DIGITS
        probabilities = [[sigmoid(value) for value in row] for row in a]
        excess = sum(sum(row) for row in probabilities) / rows - Decimal(k)
        found = []
        for i, row in enumerate(probabilities):
            found.append([])
            for c, p in enumerate(row):
                slope = p - sigmoid(b[i][c])
                if y[i][c] != 0:
                    slope += p - (1 if y[i][c] == 1 else 0)
                slope /= rows * columns
                slope += 2 * excess / columns**2 * p * (1 - p) / rows
                found[-1].append(float(slope))
        return found


def adam(gradients: Sequence[float], lr: float) -> list[float]:
    """Where a number that starts at 0 is after each step of Adam with its usual constants."""
    first = second = value = 0.0
    path = []
    for step, slope in enumerate(gradients, start=1):
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        scale = math.sqrt(second / (1 - 0.999**step)) + 1e-8
        value -= lr * first / (1 - 0.9**step) / scale
        path.append(value)
    return path

"""LCR in plain Python: the correlation of class names and both losses, loop by loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference import slow_losses

Matrix = Sequence[Sequence[float]]


def correlation(embeddings: Matrix) -> list[list[float]]:
    """Centre, cosine, no negatives, no diagonal, rows to 1."""
    count, width = len(embeddings), len(embeddings[0])
    mean = [sum(row[d] for row in embeddings) / count for d in range(width)]
    centred = [[row[d] - mean[d] for d in range(width)] for row in embeddings]
    result = []
    for a in range(count):
        row = []
        for b in range(count):
            product = sum(x * y for x, y in zip(centred[a], centred[b], strict=True))
            lengths = math.hypot(*centred[a]) * math.hypot(*centred[b])
            row.append(max(0.0, product / lengths) if a != b else 0.0)
        total = sum(row)
        result.append([value / total if total > 0 else 0.0 for value in row])
    return result


def smoothing(z: Matrix, s: Matrix) -> float:
    """(1/BC) Σ_i Σ_c Σ_c' S_cc' (p_ic - p_ic')²."""
    total = 0.0
    for row in z:
        p = [float(slow_losses.sigmoid(value)) for value in row]
        for c in range(len(p)):
            for other in range(len(p)):
                total += s[c][other] * (p[c] - p[other]) ** 2
    return total / (len(z) * len(z[0]))


def targets(y: Matrix, s: Matrix, share: float) -> list[list[float]]:
    """What an observed class hands on to c' is its row's S_cc'; a known absence stays 0."""
    result = []
    for row in y:
        soft = []
        for c, value in enumerate(row):
            received = sum(s[k][c] for k, other in enumerate(row) if other == 1)
            soft.append(1.0 if value == 1 else 0.0 if value == -1 else min(1.0, share * received))
        result.append(soft)
    return result


def smoothed_loss(z: Matrix, y: Matrix, s: Matrix, weight: float) -> float:
    labels = [[1.0 if value == 1 else 0.0 for value in row] for row in y]
    return slow_losses.mean(slow_losses.cross_entropy(z, labels)) + weight * smoothing(z, s)


def handed_on_loss(z: Matrix, y: Matrix, s: Matrix, share: float) -> float:
    return slow_losses.mean(slow_losses.cross_entropy(z, targets(y, s, share)))

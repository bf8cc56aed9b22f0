"""ELR entry by entry: a table of averages and a logarithm, in sixty digits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from reference.slow_losses import DIGITS, Matrix, sigmoid


def agreement(p: Decimal, t: Decimal, form: str) -> Decimal:
    return p * t if form == "product" else p * t + (1 - p) * (1 - t)


def regulariser(z: Matrix, t: Matrix, observed: Matrix, form: str) -> float:
    """Mean over all entries of log(1 - agreement); classes seen to be absent add nothing."""
    total, entries = Decimal(0), 0
    with localcontext() as context:
        context.prec = DIGITS
        for i, row in enumerate(z):
            for c, value in enumerate(row):
                entries += 1
                if observed[i][c] != -1:
                    total += (1 - agreement(sigmoid(value), Decimal(t[i][c]), form)).ln()
        return float(total / entries)


class Memory:
    """t of every image, moved at each visit and used right afterwards."""

    def __init__(self, images: int, classes: int, momentum: float, start: float) -> None:
        self.momentum = momentum
        self.rows = [[start] * classes for _ in range(images)]

    def visit(self, index: Sequence[int], z: Matrix) -> list[list[float]]:
        for i, row in enumerate(index):
            for c, value in enumerate(z[i]):
                past = self.rows[row][c]
                now = float(sigmoid(value))
                self.rows[row][c] = self.momentum * past + (1 - self.momentum) * now
        return [self.rows[row] for row in index]

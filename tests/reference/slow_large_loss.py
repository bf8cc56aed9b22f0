"""Large Loss entry by entry: sort, cut, correct, remember, in plain Python and exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from reference.slow_losses import DIGITS, Matrix, sigmoid

Entry = tuple[int, int]  # image, class


def pace(final: float, epochs: int) -> Fraction:
    """Share of all entries per epoch such that the epochs after the first add up to `final`."""
    return Fraction(str(final)) / (epochs - 1)


def count(entries: int, share: Fraction) -> int:
    return math.ceil(entries * share)


def suspects(z: Matrix, labels: Matrix, k: int) -> set[Entry]:
    """The unobserved entries that fewer than k others of them exceed in loss as a negative."""
    candidates = [
        (i, c) for i, row in enumerate(labels) for c, label in enumerate(row) if label == 0
    ]
    # -log(1 - p) grows with z: comparing logits is comparing losses.
    return {
        (i, c) for i, c in candidates if sum(z[j][d] > z[i][c] for j, d in candidates) < k
    }  # fmt: skip


def mean_loss(z: Matrix, labels: Matrix, selected: set[Entry], inside: str) -> float:
    """Mean over all entries; `inside` says what a selected one is: "nothing" or "positive"."""
    total, entries = Decimal(0), 0
    with localcontext() as context:
        context.prec = DIGITS
        for i, row in enumerate(z):
            for c, value in enumerate(row):
                entries += 1
                p = sigmoid(value)
                if (i, c) in selected:
                    total += Decimal(0) if inside == "nothing" else -p.ln()
                else:
                    total += -p.ln() if labels[i][c] == 1 else -(1 - p).ln()
    return float(total / entries)


class Permanent:
    """Labels that stay: a set of (training image, class), and a plan counted image by image."""

    def __init__(self, classes: int, share: Fraction) -> None:
        self.classes = classes
        self.share = share  # of all entries, per epoch
        self.added: set[Entry] = set()
        self.visited = 0  # images since the second epoch began

    def step(self, z: Matrix, observed: Matrix, index: Sequence[int], epoch: int) -> float:
        labels = [
            [1 if (row, c) in self.added else label for c, label in enumerate(observed[i])]
            for i, row in enumerate(index)
        ]
        k = 0
        if epoch > 1:
            self.visited += len(index)
            k = count(self.visited * self.classes, self.share) - len(self.added)
        chosen = suspects(z, labels, k)
        self.added |= {(index[i], c) for i, c in chosen}
        return mean_loss(z, labels, chosen, "positive")

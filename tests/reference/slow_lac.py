"""Label-wise attention and LAC's rules in plain Python, position by position and pair by pair."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

Vector = Sequence[float]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def attend(positions: Sequence[Vector], query: Vector) -> list[float]:
    """The mean of the positions, each weighed by exp(its score)."""
    weights = [math.exp(dot(position, query)) for position in positions]
    return [
        math.fsum(w * position[k] for w, position in zip(weights, positions, strict=True))
        / math.fsum(weights)
        for k in range(len(positions[0]))
    ]


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def pseudo_labels(z, observed, tau: float) -> tuple[list[list[int]], list[list[int]]]:
    """(targets, mask): q = p + y, confident if q >= tau or q < 1 - tau; absences stay absences."""
    targets, mask = [], []
    for logits, seen in zip(z, observed, strict=True):
        targets.append([])
        mask.append([])
        for value, known in zip(logits, seen, strict=True):
            q = 1 / (1 + math.exp(-value)) + (known == 1)
            if known == -1:
                q = 0.0
            targets[-1].append(int(q >= tau))
            mask[-1].append(int(known != 0 or q >= tau or q < 1 - tau))
    return targets, mask


def cross_entropy(value: float, target: float) -> float:
    p = 1 / (1 + math.exp(-value))
    return -target * math.log(p) - (1 - target) * math.log(1 - p)


def consistency(z, targets, mask) -> float:
    """Mean cross-entropy of the entries in the mask, 0 if there are none."""
    found = [
        cross_entropy(z[i][c], targets[i][c])
        for i in range(len(z))
        for c in range(len(z[0]))
        if mask[i][c]
    ]
    return math.fsum(found) / len(found) if found else 0.0


def contrast(vectors: Sequence[Vector], labels: Sequence[int], temperature: float) -> float:
    """Supervised contrastive loss, the mean over anchors."""
    total = []
    for a, anchor in enumerate(vectors):
        alike = [b for b in range(len(vectors)) if b != a and labels[b] == labels[a]]
        if not alike:
            total.append(0.0)
            continue
        among = math.fsum(
            math.exp(dot(anchor, vectors[d]) / temperature) for d in range(len(vectors)) if d != a
        )
        terms = [math.log(math.exp(dot(anchor, vectors[b]) / temperature) / among) for b in alike]
        total.append(-math.fsum(terms) / len(alike))
    return math.fsum(total) / len(total) if total else 0.0


class Memory:
    """First in, first out."""

    def __init__(self, size: int) -> None:
        self.pairs: deque = deque(maxlen=size)

    def write(self, pairs, labels) -> None:
        self.pairs.extend(zip(pairs, labels, strict=True))

    def contents(self) -> list:
        return sorted((label, pair) for pair, label in self.pairs)

    def contrast(self, temperature: float) -> float:
        vectors = [vector for pair, _ in self.pairs for vector in pair]
        labels = [label for _, label in self.pairs for _ in range(2)]
        return contrast(vectors, labels, temperature)

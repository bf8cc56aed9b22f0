"""Annotators by counting: every set of labels and every position in turn, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def chance(labels: Sequence[int], logits: Sequence[float]) -> float:
    """Probability that exactly these classes are present."""
    return math.prod(sigmoid(z if y else -z) for y, z in zip(labels, logits, strict=True))


def random_draw(logits: Sequence[float]) -> list[float]:
    """P(s = c) of each class: of all sets that contain c, one in |set| draws it."""
    found = [0.0] * len(logits)
    for labels in product((0, 1), repeat=len(logits)):
        for c, y in enumerate(labels):
            if y:
                found[c] += chance(labels, logits) / sum(labels)
    return found


def anything(logits: Sequence[float]) -> float:
    """Probability that at least one class is present."""
    sets = product((0, 1), repeat=len(logits))
    return math.fsum(chance(labels, logits) for labels in sets if any(labels))


def random_known(logits: Sequence[float], observed: Sequence[int]) -> float:
    """Probability that what is known is so, and that one of the observed labels was drawn."""
    seen = sum(1 for o in observed if o > 0)
    total = 0.0
    for labels in product((0, 1), repeat=len(logits)):
        fits = all(
            (o <= 0 or y) and (o >= 0 or not y) for o, y in zip(observed, labels, strict=True)
        )
        if fits:
            total += chance(labels, logits) * (seen / sum(labels) if seen else 1)
    return total


def selective_draw(logits: Sequence[float], weights: Sequence[float]) -> list[float]:
    """P(s = c) if c is drawn with the weight it has among all classes that are present."""
    found = [0.0] * len(logits)
    for labels in product((0, 1), repeat=len(logits)):
        whole = sum(w for w, y in zip(weights, labels, strict=True) if y)
        for c, y in enumerate(labels):
            if y:
                found[c] += chance(labels, logits) * weights[c] / whole
    return found


def selective_known(
    logits: Sequence[float], observed: Sequence[int], weights: Sequence[float]
) -> float:
    """Probability that what is known is so, and that one of the observed labels was drawn."""
    seen = sum(w for w, o in zip(weights, observed, strict=True) if o > 0)
    total = 0.0
    for labels in product((0, 1), repeat=len(logits)):
        fits = all(
            (o <= 0 or y) and (o >= 0 or not y) for o, y in zip(observed, labels, strict=True)
        )
        if fits:
            whole = sum(w for w, y in zip(weights, labels, strict=True) if y)
            total += chance(labels, logits) * (seen / whole if seen else 1)
    return total


def shares(maps: Sequence[Sequence[float]]) -> list[list[float]]:
    """a_c(v): rows are classes, columns positions."""
    columns = []
    for position in zip(*maps, strict=True):
        top = max(position)
        grown = [math.exp(value - top) for value in position]
        columns.append([value / sum(grown) for value in grown])
    return [list(row) for row in zip(*columns, strict=True)]


def areas(maps: Sequence[Sequence[float]]) -> list[float]:
    return [sum(row) / len(row) for row in shares(maps)]


def absence(maps: Sequence[Sequence[float]], looks: float) -> list[float]:
    """∏_v (1 - a_c(v))^(m / positions), with 1 - a_c as what all other classes have."""
    every = shares(maps)
    positions = range(len(maps[0]))
    return [
        math.prod(
            sum(row[v] for other, row in enumerate(every) if other != c) ** (looks / len(positions))
            for v in positions
        )
        for c in range(len(maps))
    ]


def presence(maps: Sequence[Sequence[float]], looks: float) -> list[float]:
    return [1 - value for value in absence(maps, looks)]


def area_known(maps: Sequence[Sequence[float]], observed: Sequence[int], looks: float) -> float:
    p, missing = presence(maps, looks), absence(maps, looks)
    seen = [c for c, o in enumerate(observed) if o > 0]
    total = sum(areas(maps)[c] for c in seen) if seen else 1.0
    if len(seen) > 1:
        total *= math.prod(p[c] for c in seen)
    return total * math.prod(missing[c] for c, o in enumerate(observed) if o < 0)

"""MIME entry by entry: cross-entropy of a sampled code, its divergence, and a growing label set."""

from __future__ import annotations

import math


def divergence(mean, sigma) -> float:
    """-1/2 mean(1 + 2 log sigma - mu^2 - sigma^2) over flat lists."""
    terms = [1 + 2 * math.log(s) - m**2 - s**2 for m, s in zip(mean, sigma, strict=True)]
    return -0.5 * math.fsum(terms) / len(terms)


def code(mean: float, sigma: float, draws) -> float:
    """The average of the reparameterised samples, drawn one by one."""
    return math.fsum(mean + sigma * draw for draw in draws) / len(draws)


def cross_entropy(codes, weights, biases, labels) -> float:
    """(B, C, d) codes, one vector (C, d) and bias (C,) per class."""
    total = []
    for image, row in zip(codes, labels, strict=True):
        for c, vector in enumerate(image):
            z = biases[c] + math.fsum(a * b for a, b in zip(vector, weights[c], strict=True))
            p = 1 / (1 + math.exp(-z))
            total.append(-math.log(p) if row[c] else -math.log(1 - p))
    return math.fsum(total) / len(total)


def grow(labels: set, observed, probabilities, threshold: float) -> set:
    """The (i, c) that are labels after a review."""
    grown = set(labels)
    for i, row in enumerate(probabilities):
        for c, p in enumerate(row):
            if observed[i][c] == 0 and p > threshold:
                grown.add((i, c))
    return grown

"""The criteria on noisy validation labels, one number at a time."""

from __future__ import annotations

import math

import numpy as np


def labels_of(row):
    return [c for c, value in enumerate(row) if value > 0]


def likelihood_of(row, probabilities, exponent):
    """Mean over the observed labels of log(p_s^a / sum_j p_j^a)."""
    logs = [exponent * math.log(max(p, 1e-12)) for p in probabilities]
    top = max(logs)
    whole = top + math.log(sum(math.exp(log - top) for log in logs))
    shares = [logs[s] - whole for s in labels_of(row)]
    return sum(shares) / len(shares)


def likelihood(observed, probabilities):
    values = [
        likelihood_of(row, p, 1.0)
        for row, p in zip(observed, probabilities, strict=True)
        if labels_of(row)
    ]
    return sum(values) / len(values)


def slope_of(row, probabilities, exponent):
    """Derivative of `likelihood_of` by the exponent: log p_s minus its expectation."""
    logs = [math.log(max(p, 1e-12)) for p in probabilities]
    weights = [math.exp(exponent * (log - max(logs))) for log in logs]
    expected = sum(w * log for w, log in zip(weights, logs, strict=True)) / sum(weights)
    seen = labels_of(row)
    return sum(logs[s] for s in seen) / len(seen) - expected


def exponent_of(observed, probabilities):
    """The best exponent by bisection, with one more label that is spread over everything."""

    def slope(a):
        total = 0.0
        for row, p in zip(observed, probabilities, strict=True):
            total += slope_of(row, p, a) + slope_of([1] * len(p), p, a) / len(observed)
        return total

    low, high = 0.0, 1000.0
    if slope(low) <= 1e-12:
        return low
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


def tempered(observed, probabilities):
    pairs = [(row, p) for row, p in zip(observed, probabilities, strict=True) if labels_of(row)]
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    halves = [[pair for k, pair in zip(order, pairs, strict=True) if k % 2 == r] for r in (0, 1)]
    total = 0.0
    for fitted, scored in (halves, halves[::-1]):
        exponent = exponent_of(*zip(*fitted, strict=True)) if fitted else 1.0
        total += sum(likelihood_of(row, p, exponent) for row, p in scored)
    return total / len(pairs)


def auc(observed, probabilities):
    values = []
    for c in range(len(observed[0])):
        own = [p[c] for row, p in zip(observed, probabilities, strict=True) if row[c] > 0]
        others = [p[c] for row, p in zip(observed, probabilities, strict=True) if row[c] <= 0]
        if own and others:
            wins = sum((a > b) + (a == b) / 2 for a in own for b in others)
            values.append(wins / (len(own) * len(others)))
    return sum(values) / len(values) if values else math.nan


def rank(observed, probabilities):
    values = []
    for row, p in zip(observed, probabilities, strict=True):
        seen = labels_of(row)
        others = [c for c in range(len(row)) if c not in seen]
        if seen:
            shares = [
                sum(p[c] < p[s] for c in others) / len(others) if others else 1.0 for s in seen
            ]
            values.append(sum(shares) / len(shares))
    return sum(values) / len(values)

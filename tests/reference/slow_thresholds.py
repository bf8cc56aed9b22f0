"""Plain loops for thresholds that are learnt from single labels."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import minimize

from adagc.priors.calibration import fit


def slow_f1_cut(scores, presence):
    """Try every score as the last that counts, from the highest on."""
    best, cut = -1.0, None
    levels = sorted(set(scores), reverse=True)
    for number, level in enumerate(levels):
        chosen = [p for s, p in zip(scores, presence, strict=True) if s >= level]
        value = 2 * sum(chosen) / (len(chosen) + sum(presence))
        if value > best + 1e-12:
            below = levels[number + 1] if number + 1 < len(levels) else 0.0
            best, cut = value, (level + below) / 2
    return cut


def slow_pooled(scores, presence):
    """Each class counts as often as it is expected, all together as 25 images."""
    every = slow_f1_cut(scores.flatten().tolist(), presence.flatten().tolist())
    found = []
    for c in range(scores.shape[1]):
        own = max(slow_f1_cut(scores[:, c], presence[:, c]), 1e-12)
        weight = sum(presence[:, c])
        found.append(np.exp((weight * np.log(own) + 25 * np.log(every)) / (weight + 25)))
    return found


def slow_levels(p, observed):
    """(N, C) presence, with levels found by a search on sums over all label sets."""
    classes = p.shape[1]
    a = fit(p, observed).calibration.exponent
    q = p / p.sum(axis=1, keepdims=True)
    r = q**a / (q**a).sum(axis=1, keepdims=True)
    spread = np.log((r**2).sum(axis=1, keepdims=True))

    def presence(numbers):
        alpha, gamma, beta = numbers[:3]
        return 1 / (1 + np.exp(-(alpha * np.log(q) + gamma * spread + beta + numbers[3:])))

    def cost(numbers):
        chances = presence(numbers)
        total = 0.005 * ((numbers[:3] - [1, 0, 0]) ** 2).sum() + (numbers[3:] ** 2).sum() / 2
        for chance, seen in zip(chances, observed, strict=True):
            total -= np.log(_explained(chance, seen, classes))
        return total

    found = minimize(cost, [1, 0, 0] + [0] * classes, method="BFGS")
    return presence(found.x)


def _explained(chance, seen, classes):
    """How probable it is that this was observed: every set of labels, and one of it drawn."""
    drawn = sum(seen > 0)
    total = 0.0
    for labels in product((0, 1), repeat=classes):
        if any((s > 0 and not y) or (s < 0 and y) for s, y in zip(seen, labels, strict=True)):
            continue
        weight = np.prod([x if y else 1 - x for x, y in zip(chance, labels, strict=True)])
        total += weight * (drawn / sum(labels) if drawn else 1.0)
    return total

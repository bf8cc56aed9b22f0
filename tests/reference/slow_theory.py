"""The paper's propositions on plain lists, and what is exactly true of finite rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from reference import slow_metrics

Rows = Sequence[Sequence[float]]


def count(truth: Rows, observed: Rows) -> dict[str, list[int]]:
    """True, flipped and wrong labels of every class."""
    result: dict[str, list[int]] = {"true": [], "flipped": [], "wrong": []}
    for c in range(len(truth[0])):
        true = flipped = wrong = 0
        for labels, seen in zip(truth, observed, strict=True):
            if labels[c]:
                true += 1
                flipped += int(seen[c] <= 0)
            elif seen[c] > 0:
                wrong += 1
        for name, value in (("true", true), ("flipped", flipped), ("wrong", wrong)):
            result[name].append(value)
    return result


def compare(truth: Rows, observed: Rows, scores: Rows) -> dict[str, list[float]]:
    """AP*, AP, Rec* and α of every class, NaN where undefined."""
    seen = [[int(value > 0) for value in row] for row in observed]
    recall, alpha = [], []
    for c in range(len(truth[0])):
        true = found = flipped = found_flipped = 0
        for labels, marks, values in zip(truth, seen, scores, strict=True):
            if not labels[c]:
                continue
            true += 1
            found += int(values[c] >= 0.5)
            if not marks[c]:
                flipped += 1
                found_flipped += int(values[c] >= 0.5)
        recall.append(found / true if true else math.nan)
        alpha.append(found_flipped / flipped if flipped else math.nan)
    return {
        "clean_ap": slow_metrics.average_precision(truth, scores),
        "noisy_ap": slow_metrics.average_precision(seen, scores),
        "recall": recall,
        "alpha": alpha,
    }


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def covariance(one: Sequence[float], other: Sequence[float]) -> float:
    """Over all classes, so divided by C and not by C - 1."""
    a, b = mean(one), mean(other)
    return mean([(x - a) * (y - b) for x, y in zip(one, other, strict=True)])


def predict(number: int, beta: Sequence[float], clean: Sequence[float]) -> tuple[float, float]:
    """The noisy mAP as the paper writes it, with and without the covariance."""
    if number == 1:
        without = (1 - mean(beta)) * mean(clean)
        return without - covariance(beta, clean), without
    inverse = [1 / (1 - rate) for rate in beta]
    without = mean(inverse) * mean(clean)
    return without + covariance(inverse, clean), without


def rms(values: Sequence[float]) -> float:
    return math.sqrt(mean([value**2 for value in values]))


def ap(member: Sequence[int], scores: Sequence[float]) -> float:
    """Average precision of one class."""
    column = slow_metrics.average_precision([[m] for m in member], [[s] for s in scores])
    return column[0]


def precisions(member: Sequence[int], scores: Sequence[float]) -> dict[int, tuple[int, int]]:
    """Of every positive: positives and images that score at least as high."""
    return {
        i: (
            sum(1 for m, s in zip(member, scores, strict=True) if m and s >= scores[i]),
            sum(1 for s in scores if s >= scores[i]),
        )
        for i, m in enumerate(member)
        if m
    }


def mean_over_all_flips(member: Sequence[int], scores: Sequence[float], kept: int) -> float:
    """The noisy AP, averaged over every way to keep so many of the positives."""
    positives = [i for i, m in enumerate(member) if m]
    found = []
    for chosen in combinations(positives, kept):
        noisy = [int(i in chosen) for i in range(len(member))]
        found.append(ap(noisy, scores))
    return mean(found)


def expected_ap(member: Sequence[int], scores: Sequence[float], kept: int) -> float:
    """The same in one formula: q AP* + (1 - q) mean(1 / rank), q = (K - 1) / (P - 1)."""
    places = precisions(member, scores)
    q = (kept - 1) / (len(places) - 1) if len(places) > 1 else 1.0
    ranks = mean([1 / shown for _, shown in places.values()])
    return q * ap(member, scores) + (1 - q) * ranks


def allowance(beta: float, positives: int) -> float:
    """By how much Proposition 1 is too low at most: β (H_P - 1) / (P - 1)."""
    harmonic = math.fsum(1 / i for i in range(1, positives + 1))
    return beta * (harmonic - 1) / (positives - 1) if positives > 1 else 0.0

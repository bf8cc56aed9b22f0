"""The seven metrics as one would explain them on a blackboard: plain loops over plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]


def average_precision(truth: Rows, scores: Rows) -> list[float]:
    """Walk down the distinct scores; add the precision there times the recall gained."""
    result = []
    for c in range(len(truth[0])):
        positives = sum(1 for row in truth if row[c])
        if positives == 0:
            result.append(math.nan)
            continue
        area, recall_before = 0.0, 0.0
        for level in sorted({row[c] for row in scores}, reverse=True):
            shown = hits = 0
            for labels, values in zip(truth, scores, strict=True):
                if values[c] >= level:
                    shown += 1
                    hits += int(labels[c])
            recall = hits / positives
            area += (recall - recall_before) * hits / shown
            recall_before = recall
        result.append(area)
    return result


def coverage(truth: Rows, scores: Rows) -> float:
    """How far down the list the last true label stands, ties at their worst, minus one."""
    total = 0
    for labels, values in zip(truth, scores, strict=True):
        worst = 0
        for label, value in zip(labels, values, strict=True):
            if label:
                rank = sum(1 for other in values if other >= value)
                worst = max(worst, rank)
        total += worst - 1
    return total / len(truth)


def misordered(labels: Sequence[float], values: Sequence[float]) -> int:
    """Pairs of a true and a false label of one image, the true one not strictly above."""
    wrong = 0
    for i, positive in enumerate(labels):
        for j, other in enumerate(labels):
            if positive and not other and values[i] <= values[j]:
                wrong += 1
    return wrong


def ranking_loss(truth: Rows, scores: Rows) -> float:
    """Share of misordered pairs, averaged over images; an image without pairs adds 0."""
    total = 0.0
    for labels, values in zip(truth, scores, strict=True):
        positives = sum(1 for label in labels if label)
        pairs = positives * (len(labels) - positives)
        if pairs:
            total += misordered(labels, values) / pairs
    return total / len(truth)


def overall_accuracy(truth: Rows, scores: Rows, threshold: Sequence[float]) -> float:
    """Share of right entries of the table."""
    right = 0
    for labels, values in zip(truth, scores, strict=True):
        for label, value, limit in zip(labels, values, threshold, strict=True):
            right += int((value >= limit) == bool(label))
    return right / (len(truth) * len(truth[0]))


def precision_recall_f1(
    truth: Rows, scores: Rows, threshold: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Per class; 0 where the ratio is undefined."""
    result = []
    for c, limit in enumerate(threshold):
        hits = false_alarms = misses = 0
        for labels, values in zip(truth, scores, strict=True):
            chosen = values[c] >= limit
            hits += int(chosen and bool(labels[c]))
            false_alarms += int(chosen and not labels[c])
            misses += int(not chosen and bool(labels[c]))
        precision = hits / (hits + false_alarms) if hits + false_alarms else 0.0
        recall = hits / (hits + misses) if hits + misses else 0.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        result.append((precision, recall, f1))
    return result

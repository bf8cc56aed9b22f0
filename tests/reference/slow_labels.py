"""Label simulation and statistics, one image and one class at a time."""

from __future__ import annotations

import math

import numpy as np


def flip_rates(truth, observed):
    images, classes = np.shape(truth)
    support, missed, wrong, seen = [0] * classes, [0] * classes, 0, 0
    histogram = [0] * (classes + 1)
    for i in range(images):
        cardinality = 0
        for c in range(classes):
            is_true, is_seen = int(truth[i][c]) == 1, int(observed[i][c]) == 1
            cardinality += is_true
            seen += is_seen
            support[c] += is_true
            missed[c] += is_true and not is_seen
            wrong += is_seen and not is_true
        histogram[cardinality] += 1
    beta = [m / s if s else math.nan for m, s in zip(missed, support, strict=True)]
    rates = [b for b in beta if not math.isnan(b)]
    return {
        "beta": beta,
        "support": support,
        "micro": sum(missed) / sum(support) if sum(support) else math.nan,
        "macro": sum(rates) / len(rates) if rates else math.nan,
        "observed": seen,
        "wrong": wrong,
        "cardinality": histogram,
        "mean_cardinality": sum(support) / images if images else math.nan,
    }


def dominant_candidates(areas):
    """For each image, the classes that the dominant scheme may choose."""
    candidates = []
    for row in areas:
        best = 0.0
        for area in row:
            best = max(best, area)
        candidates.append([c for c, area in enumerate(row) if area == best and best > 0])
    return candidates


def cooccurrence(truth):
    images, classes = np.shape(truth)
    out = [[math.nan] * classes for _ in range(classes)]
    for i in range(classes):
        having = [n for n in range(images) if truth[n][i]]
        for j in range(classes):
            if having:
                out[i][j] = sum(bool(truth[n][j]) for n in having) / len(having)
    return out


def areas(maps, classes, ignore=()):
    out = []
    for image in maps:
        counts = [0] * classes
        pixels = 0
        for line in image:
            for value in line:
                pixels += 1
                if int(value) not in ignore:
                    counts[int(value)] += 1
        out.append([count / pixels for count in counts])
    return out

"""Losses as pure functions of logits.

Those of single entries return a (B, C) matrix, of which `reduce` takes the mean. Those of
annotators return the logarithm of how probable a label, or all that is known of an image, is.
"""

from __future__ import annotations

from adagc.losses.annotators import (
    anything_present,
    area_annotator,
    area_likelihood,
    presence_logits,
    random_annotator,
    random_likelihood,
    random_posterior,
)
from adagc.losses.entries import (
    binary_cross_entropy,
    entropy,
    expected_positives_gap,
    gradient_calibration,
    negative,
    positive,
    precise,
    reduce,
)

__all__ = [
    "anything_present",
    "area_annotator",
    "area_likelihood",
    "binary_cross_entropy",
    "entropy",
    "expected_positives_gap",
    "gradient_calibration",
    "negative",
    "positive",
    "precise",
    "presence_logits",
    "random_annotator",
    "random_likelihood",
    "random_posterior",
    "reduce",
]

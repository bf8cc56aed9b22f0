"""Optimisers one number at a time, from their papers."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

FIRST, SECOND, TINY, MOMENTUM = 0.9, 0.999, 1e-8, 0.9


def follow(
    kind: str, weight: float, gradients: Sequence[float], rate: float, decay: float
) -> float:
    """The weight after steps along these gradients (of the loss alone)."""
    mean = square = largest = speed = 0.0
    for step, gradient in enumerate(gradients, start=1):
        if kind == "adamw":
            weight -= rate * decay * weight
        else:
            gradient += decay * weight
        mean = FIRST * mean + (1 - FIRST) * gradient
        square = SECOND * square + (1 - SECOND) * gradient**2
        largest = max(SECOND * largest, abs(gradient) + TINY)
        speed = gradient if step == 1 else MOMENTUM * speed + gradient
        unbiased = mean / (1 - FIRST**step)
        if kind in ("adam", "adamw"):
            weight -= rate * unbiased / (sqrt(square / (1 - SECOND**step)) + TINY)
        elif kind == "adamax":
            weight -= rate * unbiased / largest
        else:
            weight -= rate * speed
    return weight

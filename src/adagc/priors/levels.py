"""Levels: a class whose scores are too high or too low everywhere.

The three numbers of `adagc.priors.calibration` are the same for all classes. A network may still
underrate one class and overrate another. Here each class c has a level δ_c of its own,

    logit P(c is present | x) = α log q_c + γ log Σ_j r_j² + β + δ_c

fitted together with the three numbers to the observed labels. Before they are seen, δ_c is believed
to be normally distributed around 0 with a deviation of 1, so a class that is rarely observed stays
close to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from adagc.priors.calibration import USUAL, Calibration, Evidence, Floats, believed, enough

if TYPE_CHECKING:
    from torch import Tensor


def presence_with_levels(probabilities: Floats, observed: NDArray[Any]) -> Floats:
    """(N, C) how probable each class is in each image, with a level of its own for every class.

    Args:
        probabilities: (N, C) predictions for images that the network was not trained on.
        observed: (N, C) their labels: +1 seen to be present, 0 not known, -1 seen to be absent.
    """
    rows = enough(observed)
    evidence = Evidence.of(probabilities[rows], observed[rows])
    shared = len(USUAL)
    start = evidence.features.new_zeros(shared + probabilities.shape[1])
    start[:shared] = start.new_tensor(USUAL)

    def logits(numbers: Tensor) -> Tensor:
        return evidence.features @ numbers[:shared] + numbers[shared:]

    def belief(numbers: Tensor) -> Tensor:
        return believed(numbers[:shared]) + numbers[shared:].square().sum() / 2

    found = evidence.most_probable(logits, belief, start)
    calibration = Calibration(evidence.exponent, *found[:shared].tolist())
    return calibration.presence(probabilities, found[shared:].numpy())

"""Choosing between methods, options and epochs by how well they explain labels they have not seen.

No clean label is needed. Scores of any method can be normalised to a distribution over which label
was observed, and the method under which held-out labels are most probable explains them best.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from adagc.metrics.noisy import tempered

TIE = 0.03  # differences below it say nothing: another seed changes as much


def likelihood(scores: ArrayLike, observed: ArrayLike) -> float:
    """Mean log-likelihood of held-out observed labels s if P(s = c) ∝ q_c^a.

    The exponent a is fitted on one half of the images and used for the other half, and the other
    way round, so that it does not matter how sharp or flat a method's scores are.

    Args:
        scores: (N, C) probabilities, areas or other scores that are not negative, of images that
            were not trained on; rows need not sum to 1.
        observed: (N, C) labels of these images: +1 seen to be present, 0 not known, -1 seen to be
            absent.

    Example:
        >>> import numpy as np
        >>> observed = np.eye(4)[np.arange(40) % 4]
        >>> round(likelihood(np.ones((40, 4)), observed), 3)  # nothing is known: log 1/4
        -1.386
    """
    return tempered(observed, scores)

"""The random annotator of land cover: classes compete for positions, any present one is drawn."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from adagc import losses
from adagc.methods.base import Supposed
from adagc.methods.likelihood import CoverAnnotator


class RandomCover(CoverAnnotator):
    """The label is any of the land cover that is present.

    A class is present if it wins some positions of the feature map against all others, as for the
    area annotator, and one of those that are present was written down at random.

    L = -log P(s) of the random annotator with p_c = 1 - exp(-n_c),
    n_c = -m mean over positions v of log(1 - a_c(v)),   a_c(v) = softmax_c s(v)

    Holds for land cover, where a position has one class, if one label per image was chosen without
    regard to its area.

    Args:
        looks: Number of positions that decide whether a class is present (m): with more looks
            smaller areas are enough.
    """

    title: ClassVar[str] = "Random cover"
    aliases: ClassVar[tuple[str, ...]] = ("U0",)
    supposes: ClassVar[Supposed] = "at random"
    selective: ClassVar[bool] = True

    def explain(self, outputs: Tensor, observed: Tensor) -> Tensor:
        """(B,) log-likelihood under the random annotator."""
        return losses.random_likelihood(outputs, observed, self.selection)

"""Land cover by an unknown rule: the label is explained by its area and by chance alike."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from adagc import losses
from adagc.methods.area_label import AreaLabel
from adagc.methods.base import Supposed


class CoverLabel(AreaLabel):
    """The label names land cover, by its area or by chance.

    Classes compete at every position of the feature maps. Both that the label was written down for
    its area and that it was drawn from all that is present have to be plausible:

    L = -1/2 log A_s - 1/2 log P(s),   A_s of Area label, P(s) of Random cover, on the same maps

    How well a network explains labels does not always tell the two rules apart, because it can
    learn to explain the same labels by either. This loss does about as well as the right one.

    Args:
        looks: Number of positions that decide whether a class is predicted (m): more looks find
            smaller areas.
    """

    title: ClassVar[str] = "Cover label"
    aliases: ClassVar[tuple[str, ...]] = ()
    supposes: ClassVar[Supposed] = ""
    selective: ClassVar[bool] = True

    def explain(self, outputs: Tensor, observed: Tensor) -> Tensor:
        """(B,) mean of the log-likelihoods under both annotators."""
        by_area = losses.area_likelihood(outputs, observed, self.looks)
        by_chance = losses.random_likelihood(self.logits(outputs), observed, self.selection)
        return 0.5 * (by_area + by_chance)

"""The area annotator: the observed label is what a random position of the image shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Supposed
from adagc.methods.likelihood import CoverAnnotator
from adagc.ranks import Share, spread


class AreaLabel(CoverAnnotator):
    """The label names what covers much of the image.

    Classes compete at every position v of the feature map, and the larger the area that a class
    wins, the more probable it is that it was written down.

    L = -log A_s,   A_c = mean over v of a_c(v),   a_c(v) = softmax_c s(v)

    A position that does not look like the observed label has almost no gradient against what it
    does look like. A class is predicted with p_c = 1 - exp(-n_c), n_c = -m mean_v log(1 - a_c(v)).

    Holds for land cover whose dominant class was written down. If the label is any of the classes
    that are present, use Random label.

    Args:
        looks: Number of positions that decide whether a class is predicted (m): more looks find
            smaller areas. The order in which images are ranked hardly depends on it.
    """

    title: ClassVar[str] = "Area label"
    aliases: ClassVar[tuple[str, ...]] = ("AL",)
    supposes: ClassVar[Supposed] = "dominant"

    def outputs(self, network: nn.Module, images: Tensor | Share) -> Tensor:
        """(B, C, h, w) class maps."""
        return spread(cast(Callable[[Tensor], Tensor], network.class_maps), images)

    def explain(self, outputs: Tensor, observed: Tensor) -> Tensor:
        """(B,) log-likelihood under the area annotator."""
        return losses.area_likelihood(outputs, observed, self.looks)

    def logits(self, outputs: Tensor) -> Tensor:
        """(B, C) logits of presence."""
        return losses.presence_logits(outputs, self.looks)

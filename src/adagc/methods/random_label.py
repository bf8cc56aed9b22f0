"""The random annotator: the observed label is any of the classes that are present."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from adagc import losses
from adagc.methods.base import Supposed
from adagc.methods.likelihood import Annotator
from adagc.models.spec import HeadSpec

HEADS = {"mean": HeadSpec(), "any": HeadSpec("any-position")}


class RandomLabel(Annotator):
    """The label is any of the classes that are present.

    Classes are present independently of each other, p_c = sigmoid(z_c), and one of those that are
    present was written down, each with the same probability.

    L = -log P(s),   P(s = c) = p_c ∫₀¹ ∏_{j ≠ c} (1 - p_j + p_j u) du

    Nothing is assumed absent: a class that is present but was not drawn only has to leave the drawn
    one its chance. The integral is exact (`adagc.losses.random_annotator`). What a review adds is
    used as it is meant: classes seen to be absent are absent, several labels are all present. With
    measured selection rates (`--selection`) c is drawn with probability w_c / Σ w_j instead.

    Holds where one label per image was chosen without regard to its size or importance. If people
    wrote down what covers most of the image, use Area label.

    Args:
        pooling: What a class must show to be present: "mean" takes the mean over positions and
            works on embeddings too; "any" takes a soft maximum over positions, for objects that
            cover a small part of an image, and needs images or stored feature maps.
    """

    title: ClassVar[str] = "Random label"
    aliases: ClassVar[tuple[str, ...]] = ("RM",)
    supposes: ClassVar[Supposed] = "at random"
    selective: ClassVar[bool] = True

    def __init__(self, *, pooling: Literal["mean", "any"] = "mean") -> None:
        super().__init__()
        self.pooling = pooling

    def head(self) -> HeadSpec:
        """The plain last layer, or one with a soft maximum over positions."""
        return HEADS[self.pooling]

    def explain(self, outputs: Tensor, observed: Tensor) -> Tensor:
        """(B,) log-likelihood under the random annotator."""
        return losses.random_likelihood(outputs, observed, self.selection)

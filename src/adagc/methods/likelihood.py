"""What methods have in common that maximise the likelihood of the labels an annotator chose."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from adagc.methods.base import Method
from adagc.models.spec import HeadSpec
from adagc.ranks import Share
from adagc.types import Batch, Losses, Progress, Task

FAMILY = "Likelihood methods"


class Annotator(Method):
    """Base class: a subclass says how probable the observed label of an image is."""

    family: ClassVar[str] = FAMILY
    selection: Tensor | None  # (C,) weights of the classes in the annotator's draw; None: all alike

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("selection", None, persistent=False)

    def setup(self, network: nn.Module, task: Task) -> None:
        """Note how the annotator chooses, if that was measured."""
        super().setup(network, task)
        self.selection = task.selection if self.selective else None

    def outputs(self, network: nn.Module, images: Tensor | Share) -> Tensor:
        """What the network says of each image: its (B, C) logits, or more."""
        logits: Tensor = network(images)
        return logits

    @abstractmethod
    def explain(self, outputs: Tensor, observed: Tensor) -> Tensor:
        """(B,) log-likelihood of all that was observed of each image, given these outputs."""

    def logits(self, outputs: Tensor) -> Tensor:
        """(B, C) logits of presence that these outputs mean."""
        return outputs

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """Minus the mean log-likelihood of the batch's images."""
        total = -self.explain(self.outputs(network, batch.images), batch.observed).mean()
        return Losses(total, {"likelihood": total})


class CoverAnnotator(Annotator):
    """Base class of annotators of land cover: classes compete for the positions of an image."""

    needs: ClassVar[frozenset[str]] = frozenset({"feature_map"})
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"looks": (1e-3, math.inf)}

    def __init__(self, *, looks: float = 9.0) -> None:
        super().__init__()
        self.looks = looks

    def head(self) -> HeadSpec:
        """A last layer in which classes compete for positions."""
        return HeadSpec("areas", looks=self.looks)

"""Auto: which annotator explains the labels best is found out while training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from adagc.choice import TIE, likelihood
from adagc.methods.completion import ANNOTATORS, AnnotatorName, Completion, estimated_shares
from adagc.models.positions import AnnotatorsHead
from adagc.models.spec import HeadSpec
from adagc.ranks import spread
from adagc.types import Batch, Losses, Progress, Task

CANDIDATES: tuple[AnnotatorName, ...] = ("random", "cover", "area")  # as in AnnotatorsHead.names


class Auto(Completion):
    """Find out how labels came about, complete them, learn all.

    Stage 1:   L = -Σ_a log P_a(s), with one last layer for each annotator a: "random", any class
               that is present; "cover", any land cover that is present; "area", what covers much
               of the image. They share the rest of the network.
    Choice:    the annotator and the epoch with which the observed validation labels are most
               probable (`adagc.choice.likelihood`); "random" if none is clearly better
    Stage 2:   Completion with "random"; the others go on alone, because labels of dominant classes
               do not tell how many to add

    On embeddings and stored features, which have no positions or none that the network uses, there
    is only "random". Nothing has to be tuned.

    Args:
        patience: Number of epochs after the one that explains the labels best, until completion.
        momentum: Share of its old weights that the average keeps in every step; by default it looks
            back over two epochs.
        force: Share of all epochs after which labels are completed even if `patience` has not run
            out.
    """

    title: ClassVar[str] = "Auto"

    def __init__(
        self, *, patience: int = 5, momentum: float | None = None, force: float = 0.6
    ) -> None:
        super().__init__(patience=patience, momentum=momentum, force=force)
        self.candidates: tuple[AnnotatorName, ...] = CANDIDATES[:1]
        # By annotator: its best likelihood so far, in which epoch, and frequencies estimated there.
        self.explained_by: dict[str, float] = {}
        self.best_epochs: dict[str, int] = {}
        self.estimated: dict[str, tuple[float, ...]] = {}

    def check(self, task: Task) -> None:
        """Note whether the network has positions that classes can compete for."""
        super().check(task)
        self.candidates = CANDIDATES if task.positions else CANDIDATES[:1]

    def head(self) -> HeadSpec:
        """A last layer for each annotator, or the plain one if there is only one."""
        return HeadSpec("annotators") if len(self.candidates) > 1 else super().head()

    def setup(self, network: nn.Module, task: Task) -> None:
        """As in Completion."""
        super().setup(network, task)
        self.every = [ANNOTATORS[name]() for name in self.candidates]
        self._use(network)

    def get_extra_state(self) -> dict[str, Any]:
        """What was found out so far, stored in checkpoints."""
        return {
            **super().get_extra_state(),
            "annotator": self.annotator,
            "explained_by": dict(self.explained_by),
            "best_epochs": dict(self.best_epochs),
            "estimated": dict(self.estimated),
        }

    def set_extra_state(self, state: Any) -> None:
        """Restore it from a checkpoint."""
        super().set_extra_state(state)
        self.explained = ANNOTATORS[self.annotator]()

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """All annotators together in stage 1, the chosen one in stage 2."""
        if self.completed_after is not None or len(self.candidates) == 1:
            return super().loss(network, batch, progress)  # the chosen one alone
        outputs = spread(_outputs(network), batch.images)
        parts: dict[str, Tensor] = {
            name: -annotator.explain(output, batch.observed).mean()
            for name, annotator, output in zip(self.candidates, self.every, outputs, strict=True)
        }
        return Losses(torch.stack(list(parts.values())).sum(), parts)

    def after_step(self, network: nn.Module) -> None:
        """Have the network use the last layer of the best annotator so far, and average it."""
        self._use(network)
        super().after_step(network)

    def probe(self, network: nn.Module) -> nn.Module:
        """The predictions of all last layers of the average, side by side."""
        if len(self.candidates) == 1:
            return super().probe(network)
        return AllHeads(self.average.network)

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Compare annotators by how well they explain the validation labels."""
        seen = observed.cpu().numpy()
        parts = probabilities.cpu().numpy().reshape(len(seen), len(self.candidates), -1)
        for number, name in enumerate(self.candidates):
            scores = parts[:, number]
            value = likelihood(scores, seen)
            if value > self.explained_by.get(name, -math.inf):
                self.explained_by[name] = value
                self.best_epochs[name] = progress.epoch
                self.estimated[name] = estimated_shares(scores, seen)
        best = max(self.candidates, key=self._merit)
        self.annotator, self.explained = best, ANNOTATORS[best]()
        self.best_epoch, self.best_value = self.best_epochs[best], self.explained_by[best]
        self.shares = self.estimated[best]

    def _merit(self, name: str) -> float:
        """How well an annotator explains the labels; smaller differences than a tie are none."""
        return self.explained_by[name] + (TIE if name == CANDIDATES[0] else 0.0)

    @property
    def completes(self) -> bool:
        """Whether labels are completed with the chosen annotator."""
        return self.annotator == CANDIDATES[0]

    def _use(self, network: nn.Module) -> None:
        head = getattr(network, "head", None)
        if isinstance(head, AnnotatorsHead):
            head.choice.fill_(head.names.index(self.annotator))

    def status(self) -> dict[str, Any]:
        """As in Completion, and which annotator explains the labels best."""
        return {
            **super().status(),
            "annotator": self.annotator,
            "explained_by": {name: round(value, 4) for name, value in self.explained_by.items()},
        }


class AllHeads(nn.Module):
    """Gives the probabilities of all last layers of a network, one after the other: (B, A * C)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def probabilities(self, values: Tensor) -> Tensor:
        """(B, A * C) probabilities."""
        head = cast(AnnotatorsHead, self.network.head)
        feature_map = cast(Callable[[Tensor], Tensor], self.network.feature_map)
        logits = head.all_logits(feature_map(values))
        return torch.cat([one.float().sigmoid() for one in logits], dim=1)


def _outputs(network: nn.Module) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """The outputs of all last layers as a function of images."""
    head = cast(AnnotatorsHead, network.head)
    feature_map = cast(Callable[[Tensor], Tensor], network.feature_map)
    return lambda images: head.outputs(feature_map(images))

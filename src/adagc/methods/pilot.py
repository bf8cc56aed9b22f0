"""The pilot: a short training whose validation predictions tell how frequent classes are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from adagc.choice import likelihood
from adagc.methods.completion import AnnotatorName, Completion
from adagc.types import Progress, Scores, Verdict


class Pilot(Completion):
    """The first stage of Completion, and nothing more.

    It stops some epochs after the one that explains the observed validation labels best, and keeps
    the predictions of that epoch. It is no method to choose: it is run before a method that wants
    to know how frequent classes are (`adagc.training.pilot`) or which annotator explains labels
    best (`adagc.training.shortlist`).

    Args:
        most: Number of epochs after which it stops in any case.
        patience: Number of epochs after the best one until it stops.
        annotator: How labels came about; by default any class that is present was named.
    """

    title: ClassVar[str] = "pilot"

    def __init__(
        self, *, most: int, patience: int = 5, annotator: AnnotatorName = "random"
    ) -> None:
        super().__init__(patience=patience, annotator=annotator)
        self.most = most
        self.epochs = 0  # how many it took
        self.best: tuple[NDArray[np.float32], NDArray[np.int8]] | None = None

    def reviews(self, progress: Progress) -> bool:
        """Never: training images are not predicted."""
        return False

    def wants_validation(self, progress: Progress) -> bool:
        """Always."""
        return True

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Keep the predictions and labels of the epoch that explains the labels best."""
        scores, seen = probabilities.cpu().numpy(), observed.cpu().numpy()
        value = likelihood(scores, seen)
        if value > self.best_value or self.best is None:
            self.best_epoch, self.best_value = progress.epoch, value
            self.best = scores, seen

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Stop after `patience` epochs without a better one, or after `most` of them."""
        self.epochs = progress.epoch
        waited = progress.epoch - self.best_epoch >= self.patience
        return Verdict.STOP if waited or progress.epoch >= self.most else Verdict.CONTINUE

    def status(self) -> dict[str, Any]:
        """The best epoch so far."""
        return {"best_epoch": self.best_epoch}

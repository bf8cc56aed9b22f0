"""Completion: explain the observed labels, complete them, and learn the completed ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adagc import losses
from adagc.choice import likelihood
from adagc.methods.area_label import AreaLabel
from adagc.methods.base import Method, positives
from adagc.methods.cover_label import CoverLabel
from adagc.methods.likelihood import FAMILY, Annotator
from adagc.methods.random_cover import RandomCover
from adagc.methods.random_label import RandomLabel
from adagc.methods.state import AveragedNetwork, Mixup, SampleTable
from adagc.models.spec import HeadSpec
from adagc.priors.calibration import calibrated
from adagc.types import (
    Batch,
    Losses,
    Milestone,
    NetworkRole,
    Progress,
    Reported,
    Scores,
    Story,
    Task,
    Verdict,
)

AnnotatorName = Literal["random", "random-any", "random-cover", "area", "cover"]
ANNOTATORS: Mapping[AnnotatorName, Callable[[], Annotator]] = {
    "random": RandomLabel,
    "random-any": lambda: RandomLabel(pooling="any"),
    "random-cover": RandomCover,
    "area": AreaLabel,
    "cover": CoverLabel,
}


def estimated_shares(scores: NDArray[np.float32], seen: NDArray[np.int8]) -> tuple[float, ...]:
    """Share of images that contain each class; without intervals, which cost most of the time."""
    values = scores.astype(np.float64)
    shares: list[float] = calibrated(values, seen).presence(values).mean(axis=0).tolist()
    return tuple(shares)


class Completion(Method):
    """Explain the labels, complete them, then learn all of them.

    Stage 1:       L = -log P(s), the likelihood of the observed label under an annotator
    Average:       θ_A ← β θ_A + (1 - β) θ                                    after every step
    Frequencies:   π_c, how many images contain c, estimated from validation predictions of θ_A in
                   the epoch that explains the observed validation labels best
    Completion:    T_ic = 1 if c was observed in image i, or if i is among the π_c N training images
                   with the highest score of c by θ_A, b_e epochs after that epoch
    Stage 2:       from θ_A on, with a new optimiser and a new average, on mixed images:
                   L = Σ_c BCE(z(x̃), T̃) - φ log P(s_i) - (1 - φ) log P(s_j)

    Completed labels stay as they are. The average is deployed.

    Args:
        annotator: How observed labels came about: "random", any class that is present (see Random
            label); "random-any", the same for small objects, on maps; "random-cover", any land
            cover that is present (Random cover); "area", what covers much of the image (Area
            label); "cover", either of the last two (Cover label).
        patience: Number of epochs after the one that explains the labels best, until completion
            (b_e).
        targets: Whether completed labels are "hard", 1 for the images that score highest, or
            "soft", the predicted probabilities.
        momentum: Share of its old weights that the average keeps in every step (β); by default it
            looks back over two epochs.
        mixup: Parameter of the Beta distribution of the mixing share φ of two images (α), 0 for
            none.
        weight: Weight of the likelihood in stage 2.
        force: Share of all epochs after which labels are completed even if `patience` has not run
            out.
    """

    title: ClassVar[str] = "Completion"
    family: ClassVar[str] = FAMILY
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "patience": (1, math.inf),
        "momentum": (0, 1),
        "mixup": (0, math.inf),
        "weight": (0, math.inf),
        "force": (0, 1),
    }
    observed: Tensor  # (N, C) int8: labels of the training images
    trial_epochs: ClassVar[int | None] = None  # when stage 2 begins depends on the whole run
    keeps: ClassVar[str] = "an average of the network, completed labels per image"
    cost: ClassVar[float] = 1.0
    selective: ClassVar[bool] = True

    def __init__(
        self,
        *,
        annotator: AnnotatorName = "random",
        patience: int = 5,
        targets: Literal["hard", "soft"] = "hard",
        momentum: float | None = None,
        mixup: float = 1.0,
        weight: float = 1.0,
        force: float = 0.6,
    ) -> None:
        super().__init__()
        self.annotator = annotator
        self.patience = patience
        self.targets = targets
        self.momentum = momentum
        self.mixup = mixup
        self.weight = weight
        self.force = force
        self.best_epoch = 0
        self.best_value = -math.inf
        self.best_seen: tuple[Tensor, Tensor] | None = None  # predictions and labels of that epoch
        self.shares: tuple[float, ...] = ()  # π, estimated from these when labels are completed
        self.completed_after: int | None = None
        self.explained = ANNOTATORS[annotator]()

    def head(self) -> HeadSpec:
        """The last layer that the annotator needs."""
        return self.explained.head()

    def setup(self, network: nn.Module, task: Task) -> None:
        """Make the average, and a table for completed labels."""
        super().setup(network, task)
        self.explained.setup(network, task)
        momentum = self.momentum
        if momentum is None:
            momentum = 1 - 1 / max(2 * task.steps_per_epoch, 10)
        self.average = AveragedNetwork(network, momentum)
        self.completed = SampleTable(*task.observed.shape)
        self.register_buffer("observed", task.observed.clone(), persistent=False)
        self.predicted: Tensor | None = None  # of this epoch only

    def get_extra_state(self) -> dict[str, Any]:
        """Epochs and frequencies, stored in checkpoints."""
        return {
            "best_epoch": self.best_epoch,
            "best_value": self.best_value,
            "best_seen": self.best_seen,
            "shares": self.shares,
            "completed_after": self.completed_after,
        }

    def set_extra_state(self, state: Any) -> None:
        """Restore epochs and frequencies from a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)

    # -- one step ----------------------------------------------------------------------------

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """The likelihood, and in stage 2 the completed labels too, on mixed images."""
        if self.completed_after is None:
            return self.explained.loss(network, batch, progress)
        targets = self.completed[batch.index]
        observed = batch.observed
        images = batch.images
        if self.mixup > 0:
            mix = Mixup.draw(len(targets), self.mixup, batch.generator, device=targets.device)
            images, targets = mix(images), mix(targets)
        outputs = self.explained.outputs(network, images)
        completion = losses.binary_cross_entropy(self.explained.logits(outputs), targets)
        completion = completion.sum(dim=1).mean()
        total, parts = completion, {"completion": completion}
        if self.weight > 0:
            explained = self.explained.explain(outputs, observed)
            if self.mixup > 0:
                partner = self.explained.explain(outputs, observed[mix.partner])
                explained = torch.lerp(partner, explained, mix.share.to(explained.dtype))
            unexplained = -explained.mean()
            total = total + self.weight * unexplained
            parts["likelihood"] = unexplained
        return Losses(total, parts)

    def after_step(self, network: nn.Module) -> None:
        """Move the average towards the network."""
        self.average.update(network)

    # -- when to complete --------------------------------------------------------------------

    def reviews(self, progress: Progress) -> bool:
        """Whether labels may be completed after this epoch."""
        return self.completed_after is None and self._due(progress)

    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Note the predictions for the training images."""
        self.predicted = probabilities

    def wants_validation(self, progress: Progress) -> bool:
        """In stage 1."""
        return self.completed_after is None

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Keep the predictions of the epoch that explains the labels best.

        Frequencies are estimated from them when they are needed: doing so in every epoch that is
        better than those before it would take as long as the steps of a small network.
        """
        scores, seen = probabilities.cpu().numpy(), observed.cpu().numpy()
        value = likelihood(scores, seen)
        if value > self.best_value:
            self.best_epoch, self.best_value = progress.epoch, value
            self.best_seen = probabilities.cpu().clone(), observed.cpu().to(torch.int8)
        if self.targets != "hard" and self.reviews(progress):
            self.calibration = calibrated(scores.astype(np.float64), seen)

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Complete the labels, some epochs after the best one, and begin the second stage."""
        predicted, self.predicted = self.predicted, None
        if self.completed_after is not None or not self._due(progress) or predicted is None:
            return Verdict.CONTINUE
        self.completed_after = progress.epoch
        if self.best_seen is not None:
            self.shares = estimated_shares(*(values.numpy() for values in self.best_seen))
            self.best_seen = None
        self._complete(predicted)
        return Verdict.RESTART

    def _due(self, progress: Progress) -> bool:
        waited = self.best_epoch > 0 and progress.epoch - self.best_epoch >= self.patience
        return waited or progress.epoch >= max(1, round(self.force * progress.epochs))

    def _complete(self, predicted: Tensor) -> None:
        """Fill the table of completed labels; what was observed stays as it was observed."""
        observed = self.observed.to(predicted.device)
        if self.targets == "soft":
            presence = self.calibration.presence(predicted.double().cpu().numpy())
            completed = torch.from_numpy(presence).to(predicted)
        else:
            count = len(predicted)
            completed = torch.zeros_like(predicted)
            for c, frequency in enumerate(self.shares):
                most = min(count, round(frequency * count))
                completed[predicted[:, c].topk(most).indices, c] = 1.0
        completed = torch.where(observed == 0, completed, positives(observed))
        self.completed.write(torch.arange(len(completed), device=completed.device), completed)

    def restarted(self, network: nn.Module, progress: Progress) -> None:
        """Begin a new average."""
        self.average.begin_anew(network)

    # -- networks and values for evaluation --------------------------------------------------

    def watched(self, network: nn.Module) -> nn.Module:
        """The average."""
        return self.average.network

    def deployed(self, network: nn.Module) -> nn.Module:
        """The average."""
        return self.average.network

    def reported(self, network: nn.Module) -> dict[str, Reported]:
        """The average, which is deployed, and the network it is an average of."""
        return {
            "network": Reported(self.average.network, NetworkRole.DEPLOYED, "average"),
            "student": Reported(network, NetworkRole.TRAINED),
        }

    def estimates(self) -> Tensor | None:
        """(N, C) completed labels; None in stage 1."""
        return None if self.completed_after is None else self.completed.values

    def status(self) -> dict[str, Any]:
        """The stage, the best epoch, when labels were completed, and how many."""
        return {
            "stage": "explaining" if self.completed_after is None else "completing",
            "best_epoch": self.best_epoch or None,
            "completed_after": self.completed_after,
            "expected_labels": round(sum(self.shares), 3) if self.shares else None,
        }

    @classmethod
    def story(cls, status: Mapping[str, Any], *, went_back: bool) -> Story:
        """When labels were completed."""
        after, best = status.get("completed_after"), status.get("best_epoch")
        marks = [] if best is None else [Milestone(best, f"best: {best}")]
        if after is None:
            return Story(tuple(marks), sentence="Labels were not completed yet")
        marks.append(Milestone(after, f"completed after {after}", strong=True))
        said = f"Labels were completed after epoch {after}, and then all of them were learnt"
        return Story(tuple(marks), after, sentence=said)

"""Auto: nothing to tune and nothing to know about how labels came about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn

from adagc.methods.completion import ANNOTATORS, Completion
from adagc.methods.state import AveragedNetwork
from adagc.metrics.noisy import auc
from adagc.types import Milestone, NetworkRole, Progress, Reported, Story, Task

# Positions from which on classes compete for them. On maps of 3 x 3 of AID, whose images show five
# classes, it costs a point of mAP; on 4 x 4 of synthetic scenes it gains five, on 5 x 5 of mosaics
# fourteen.
ENOUGH = 16
# By how much less AUC the second stage may rank validation images and is still preferred. Such
# differences are chance, and completed labels give calibrated probabilities.
TIE = 0.003
WINDOW = 3  # epochs whose mean AUC decides
# What an annotator takes the label for, in the sentence that says what was chosen.
_ASSUMED = {
    "cover": "land cover (classes compete for places)",
    "random": "any class present (few places to compete for)",
}


class Auto(Completion):
    """Explain labels, complete them, and keep the best epoch.

    Annotator:     "cover" if there are at least 4 x 4 positions: classes compete for them, and the
                   label was chosen by its area or by chance (see Cover label); "random" on
                   embeddings and coarser maps, on which classes share positions (see Random label)
    Two stages:    as in Completion
    Choice:        the average after the epoch, of either stage, that ranks images best by their
                   observed validation labels (their AUC, the mean of this and the two epochs before
                   it) is deployed; of two that can hardly be told apart, the one of stage 2

    Whether completion helped is thus decided by labels that were not trained on: those of dominant
    classes tell little of the others, and then an epoch of the first stage remains. Nothing has to
    be tuned, and a step costs as much as one of AN.

    Args:
        patience: Number of epochs after the one that explains the labels best, until completion.
        momentum: Share of its old weights that the average keeps in every step; by default it looks
            back over two epochs.
        force: Share of all epochs after which labels are completed even if `patience` has not run
            out.
    """

    title: ClassVar[str] = "Auto"
    keeps: ClassVar[str] = "an average of the network, the best of it, completed labels per image"

    def __init__(
        self, *, patience: int = 5, momentum: float | None = None, force: float = 0.6
    ) -> None:
        super().__init__(patience=patience, momentum=momentum, force=force)
        self.kept_epoch: int | None = None
        self.kept_value = -math.inf
        self.kept_stage = "explaining"
        self.leeway = 0.0  # by how much less AUC another epoch is preferred to the kept one
        self.recent: tuple[float, ...] = ()  # AUC of the last epochs of this stage

    def check(self, task: Task) -> None:
        """Choose the annotator by whether the network sees where something is."""
        super().check(task)
        self.annotator = "cover" if task.positions >= ENOUGH else "random"
        self.explained = ANNOTATORS[self.annotator]()

    def setup(self, network: nn.Module, task: Task) -> None:
        """As in Completion, with a copy of the network that the best weights are kept in."""
        super().setup(network, task)
        self.kept = AveragedNetwork(network, 0.0)

    def get_extra_state(self) -> dict[str, Any]:
        """What was found out so far, stored in checkpoints."""
        return {
            **super().get_extra_state(),
            "kept_epoch": self.kept_epoch,
            "kept_value": self.kept_value,
            "kept_stage": self.kept_stage,
            "leeway": self.leeway,
            "recent": self.recent,
        }

    def wants_validation(self, progress: Progress) -> bool:
        """In both stages."""
        return True

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Keep the average if it ranks the validation images better than ever before.

        Of a few hundred labels the AUC varies by chance from epoch to epoch, and the highest of
        many values is often that of a poor epoch. The mean of three is harder to fool.
        """
        if super().wants_validation(progress):
            super().see_validation(probabilities, observed, progress)
        latest = auc(observed.cpu().numpy(), probabilities.cpu().numpy())
        self.recent = (*self.recent, latest)[-WINDOW:]
        value = sum(self.recent) / len(self.recent)
        if value <= self.kept_value - self.leeway:
            return
        # If there is nothing to rank, the value is no number: then the last epoch is kept.
        self.kept_value, self.leeway = value, 0.0
        self.kept_epoch = progress.epoch
        self.kept_stage = "explaining" if self.completed_after is None else "completing"
        self.kept.begin_anew(self.average.network)

    def restarted(self, network: nn.Module, progress: Progress) -> None:
        """Begin a new average, which is kept from the epoch on in which it ranks as well."""
        super().restarted(network, progress)
        self.leeway = TIE
        self.recent = ()

    def reviewed(self, network: nn.Module) -> nn.Module:
        """The average, with which the second stage begins, not the kept one."""
        return self.average.network

    def deployed(self, network: nn.Module) -> nn.Module:
        """The kept network."""
        return self.kept.network

    def reported(self, network: nn.Module) -> dict[str, Reported]:
        """The kept network, which is deployed, and the trained one it comes from."""
        return {
            "network": Reported(self.kept.network, NetworkRole.DEPLOYED, "kept average"),
            "student": Reported(network, NetworkRole.TRAINED),
        }

    def status(self) -> dict[str, Any]:
        """As in Completion, with the annotator, and which epoch is kept and why."""
        known = math.isfinite(self.kept_value)
        return {
            **super().status(),
            "annotator": self.annotator,
            "kept_epoch": self.kept_epoch,
            "kept_stage": self.kept_stage,
            "kept_auc": round(self.kept_value, 4) if known else None,
        }

    @classmethod
    def story(cls, status: Mapping[str, Any], *, went_back: bool) -> Story:
        """What the label was taken for, and which epoch is deployed and why."""
        told = super().story(status, went_back=went_back)
        epoch, value, after = (
            status.get(name) for name in ("kept_epoch", "kept_auc", "completed_after")
        )
        if epoch is None:
            return told
        assumed = _ASSUMED.get(str(status.get("annotator")), "a class present")
        stage = "after" if status.get("kept_stage") == "completing" else "before"
        place = "" if after is None else f", {stage} completing labels"
        why = "held-out labels rank nothing"
        if value is not None:
            why = f"it ranks held-out labels best (AUC {value:.3f})"
        said = f"Auto took the label for {assumed} and kept epoch {epoch}{place}: {why}"
        marks = (*told.milestones, Milestone(epoch, f"kept: {epoch}"))
        return replace(told, milestones=marks, sentence=said)

"""Auto: nothing to tune and nothing to know about how labels came about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from adagc import choice
from adagc.methods.completion import ANNOTATORS, AnnotatorName, Completion
from adagc.methods.pilot import Pilot
from adagc.methods.state import AveragedNetwork
from adagc.metrics.noisy import auc
from adagc.types import Milestone, NetworkRole, Progress, Reported, Story, Task

# Positions from which on classes may compete for them. On maps of 3 x 3 of AID, whose images show
# five classes, it costs a point of mAP; on 4 x 4 of synthetic scenes it gains three, on 5 x 5 of
# mosaics fourteen.
ENOUGH = 16
# A short training takes this share of the epochs, and at least so many: after these, the annotator
# that is ahead stayed ahead in 19 of 20 trainings whose records were looked at.
SHARE, LEAST = 0.25, 8
# By how much less AUC the second stage may rank validation images and is still preferred. Such
# differences are chance, and completed labels give calibrated probabilities.
TIE = 0.003
WINDOW = 3  # epochs whose mean AUC decides
# What an annotator takes the label for, and why if it was not tried: parts of the sentence that
# says what was chosen.
_ASSUMED = {
    "cover": ("land cover", "classes compete for places"),
    "random": ("any class present", "few places to compete for"),
}
# In the order in which they are tried; if they tie, the first is taken.
_TRIED: tuple[AnnotatorName, ...] = ("cover", "random")


class Auto(Completion):
    """Explain labels, complete them, and keep the best epoch.

    Annotator:     "cover": classes compete for positions, and the label was chosen by its area or
                   by chance (see Cover label); or "random": any class that is present was named
                   (see Random label). Where there are 4 x 4 positions or more, both are trained
                   for a quarter of the epochs, and the one under which the observed labels of
                   validation images are most probable is taken ("cover" if they tie); on
                   embeddings and coarser maps, on which classes share positions, it is "random"
    Two stages:    as in Completion
    Choice:        the average after the epoch, of either stage, that ranks images best by their
                   observed validation labels (their AUC, the mean of this and the two epochs before
                   it) is deployed; of two that can hardly be told apart, the one of stage 2

    Whether completion helped is thus decided by labels that were not trained on: those of dominant
    classes tell little of the others, and then an epoch of the first stage remains. Nothing has to
    be tuned. A step costs as much as one of AN, and the trial of annotators half a run more.

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
        self.lead: float | None = None  # of the annotator over the other one, if both were tried

    def check(self, task: Task) -> None:
        """Without a trial, choose the annotator by whether the network sees where something is."""
        super().check(task)
        if self.lead is None:
            self._assume("cover" if task.positions >= ENOUGH else "random")

    def shortlist(self, task: Task) -> Mapping[str, Pilot]:
        """Both annotators, where the network sees enough positions to compete for."""
        if task.positions < ENOUGH:
            return {}
        most = min(task.epochs, max(LEAST, round(SHARE * task.epochs)))
        return {name: Pilot(most=most, annotator=name) for name in _TRIED}

    def take(self, name: str, lead: float) -> None:
        """Go on with the annotator that explains held-out labels best."""
        self._assume(cast(AnnotatorName, name))
        self.lead = lead

    def _assume(self, name: AnnotatorName) -> None:
        self.annotator = name
        self.explained = ANNOTATORS[name]()

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
            "annotator_lead": None if self.lead is None else round(self.lead, 4),
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
        name, lead = str(status.get("annotator")), status.get("annotator_lead")
        assumed, reason = _ASSUMED.get(name, ("a class present", ""))
        if lead is not None:
            reason = f"{lead:.2f} likelier per label" if lead >= choice.TIE else "a tie"
        taken = f"{assumed} ({reason})" if reason else assumed
        stage = "after" if status.get("kept_stage") == "completing" else "before"
        place = "" if after is None else f", {stage} completing labels"
        why = "held-out labels rank nothing"
        if value is not None:
            why = f"it ranks held-out labels best (AUC {value:.3f})"
        said = f"Auto took the label for {taken} and kept epoch {epoch}{place}: {why}"
        marks = (*told.milestones, Milestone(epoch, f"kept: {epoch}"))
        return replace(told, milestones=marks, sentence=said)

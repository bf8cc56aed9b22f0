"""What every method is: hyper-parameters, a loss, and the few moments at which the loop asks it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adagc.errors import AdagcError, UnsuitedError, check_range
from adagc.models.spec import HeadSpec
from adagc.types import (
    Batch,
    Losses,
    NetworkRole,
    Progress,
    Reported,
    Scores,
    Story,
    Task,
    Verdict,
)

NEEDS = frozenset({"truth", "priors", "text", "feature_map"})


class Method(nn.Module, ABC):
    """A way to learn many labels from one.

    A method is written for one process: it sees the labels, draws and logits of whole batches, and
    with several ranks the passes of the network are shared out behind its back (`adagc.ranks`).

    The constructor stores hyper-parameters (its signature is the configuration), `setup` builds
    what depends on data. Tensors registered as buffers, sub-modules and `get_extra_state` are the
    whole state: what is there survives a checkpoint, what is not does not.
    """

    title: ClassVar[str]  # as tables print it
    aliases: ClassVar[tuple[str, ...]] = ()  # other names it answers to
    family: ClassVar[str] = "Other methods"  # the heading it stands under in tables
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # values worth trying when tuning
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}  # of options, inclusive
    keeps: ClassVar[str] = ""  # what it remembers from step to step besides the network, in words
    cost: ClassVar[float] = 1.0  # arithmetic of one step relative to AN, in its dearest stage

    def check(self, task: Task) -> None:
        """Refuse senseless options and a task that lacks what this method needs.

        Called before anything is written.
        """
        for name, (low, high) in self.ranges.items():
            check_range(f"method.{name}", getattr(self, name), low, high)
        require(self, task)

    def setup(self, network: nn.Module, task: Task) -> None:
        """Build tables, heads, further networks; called once, before training or resuming."""
        self.check(task)

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """The loss of one batch and its named parts."""

    def head(self) -> HeadSpec:
        """The last layer this method trains; asked before the network is built."""
        return HeadSpec()

    def after_step(self, network: nn.Module) -> None:
        """Called after every optimiser step, with the network itself, never a wrapper."""

    def reviews(self, progress: Progress) -> bool:
        """Whether `review` wants the predictions for all training images after this epoch."""
        return False

    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Look at the (N, C) predictions of the deployed network, made without augmentation."""

    def wants_validation(self, progress: Progress) -> bool:
        """Whether `see_validation` wants the validation predictions of this epoch."""
        return False

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Look at the predictions that `end_epoch` gets the scores of; called right before it.

        Args:
            probabilities: (V, C) of the `watched` network for the validation images.
            observed: (V, C) int8, what was seen of them: +1, 0 nobody looked, -1.
            progress: The epoch that has ended.
        """

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Judge the epoch from the noisy validation scores of the `watched` network."""
        return Verdict.CONTINUE

    def restored(self, progress: Progress) -> None:
        """Called right after the loop went back to the snapshot this method asked for."""

    def chosen(self, network: nn.Module) -> nn.Module:
        """The network whose weights the trained one takes over when this method asks to RESTART."""
        return self.watched(network)

    def restarted(self, network: nn.Module, progress: Progress) -> None:
        """Called right after a RESTART: the network has its new weights, the optimiser no past."""

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """What the optimiser trains, in groups with their own settings.

        Besides Adam's settings a group may say `clip=False`: not to be clipped.
        """
        return [{"params": list(network.parameters()), "lr": lr}]

    def watched(self, network: nn.Module) -> nn.Module:
        """The network whose noisy validation scores `end_epoch` gets."""
        return network

    def deployed(self, network: nn.Module) -> nn.Module:
        """The network that is tested, saved and exported."""
        return network

    def reported(self, network: nn.Module) -> Mapping[str, Reported | nn.Module]:
        """Every network worth a row in the table, by the name that files have for it.

        A bare network is the deployed one if it is called "network", and any other one else.
        """
        return {"network": self.deployed(network)}

    def estimates(self) -> Tensor | None:
        """(N, C) what the method currently believes of the training images, if it keeps that."""
        return None

    def status(self) -> dict[str, Any]:
        """What the history should tell of this epoch (stage, labels added, ...)."""
        return {}

    @classmethod
    def story(cls, status: Mapping[str, Any], *, went_back: bool) -> Story:
        """What the last `status` of a run means, for people who look at its curves.

        Args:
            status: As it was written, maybe by an earlier version.
            went_back: Whether the loop returned to a snapshot.
        """
        return Story()


def reported_by(method: Method, network: nn.Module) -> dict[str, Reported]:
    """The networks that a method reports, every one with a role and a title."""
    found = {}
    for name, given in method.reported(network).items():
        role = NetworkRole.DEPLOYED if name == "network" else NetworkRole.OTHER
        one = given if isinstance(given, Reported) else Reported(given, role)
        found[name] = replace(one, title=one.title or name)
    deployed = [name for name, one in found.items() if one.role is NetworkRole.DEPLOYED]
    if len(deployed) != 1:
        raise AdagcError(
            f"{method.title} must report one network that is deployed, not {len(deployed)}"
            f" ({', '.join(found)}): give the others another role"
        )
    return found


def require(method: Method, task: Task) -> None:
    """Fail before training if the task lacks what the method declares."""
    for need, value in (("truth", task.truth), ("priors", task.priors), ("text", task.text)):
        if need in method.needs and value is None:
            key = "text" if need == "text" else "truth"
            remedy = {
                "truth": "give the clean labels of the training images",
                "priors": "give the prior as an option, or clean training labels",
                "text": "give embeddings of the class names, made by  adagc text",
            }[need]
            raise UnsuitedError(
                f"{method.title} needs {need}, which this task does not have: {remedy}"
                f" (--{key} FILE; in scenario.yaml {key}: FILE)"
            )


def positives(observed: Tensor) -> Tensor:
    """(B, C) 1.0 where somebody saw the class: the targets of assuming everything else negative."""
    return (observed > 0).to(torch.float32)

"""The base class of methods: hyper-parameters, a loss, and the calls that the loop makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from adagc.errors import AdagcError, UnsuitedError, check_range
from adagc.methods.told import awaits
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

if TYPE_CHECKING:
    from adagc.methods.pilot import Pilot

Supposed = Literal["dominant", "at random", ""]
NEEDS = frozenset({"truth", "priors", "text", "feature_map"})


class Method(nn.Module, ABC):
    """A way to train a multi-label classifier from one observed label per image.

    A method is written as if there were one process: it gets the labels, random draws and logits
    of whole batches. With several ranks, each runs the network on a part of the images without the
    method having to know (`adagc.ranks`).

    The constructor stores hyper-parameters (its signature is the configuration), `setup` builds
    what depends on data. Tensors registered as buffers, sub-modules and `get_extra_state` are the
    whole state that checkpoints store; anything else is lost when a run is resumed.

    Example:
        >>> from torch.nn.functional import softplus
        >>> from adagc import Method, RunConfig, train
        >>> from adagc.types import Losses
        >>> class Observed(Method):
        ...     '''Learn from observed labels, and count the others as absent with a weight.'''
        ...
        ...     title = "Observed"
        ...
        ...     def __init__(self, *, weight: float = 0.1) -> None:
        ...         super().__init__()
        ...         self.weight = weight
        ...
        ...     def loss(self, network, batch, progress):
        ...         logits, seen = network(batch.images), batch.observed > 0
        ...         each = softplus(-logits) * seen + self.weight * softplus(logits) * ~seen
        ...         return Losses(each.sum(dim=1).mean())
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> train(config, Observed(weight=0.2)).settings.method
        'Observed'
    """

    title: ClassVar[str]  # name that tables print
    aliases: ClassVar[tuple[str, ...]] = ()  # other names it can be chosen by
    family: ClassVar[str] = "Other methods"  # heading of its group of rows in tables
    paper: ClassVar[str] = ""  # authors, title, venue and year of its publication
    needs: ClassVar[frozenset[str]] = frozenset()  # members of NEEDS that it cannot do without
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # option to values worth trying in tuning
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}  # option to its limits, inclusive
    # Epochs after which tuning compares options, the paper's ten; None: as many as the whole run
    # has, because a second stage would otherwise end too soon to show what they do.
    trial_epochs: ClassVar[int | None] = 10
    # Options whose right value follows from how frequent labels are: runs in which one is set by
    # hand are marked in tables (see `adagc.methods.told`).
    frequencies: ClassVar[frozenset[str]] = frozenset()
    # How labels came about if it is right: the "dominant" class was named, or one "at random" of
    # those that are present; empty if it does not say.
    supposes: ClassVar[Supposed] = ""
    # Those of them that are None unless somebody sets them, and the published number that stands in
    # where nobody says how frequent labels are. Where somebody does, `informed` says what follows.
    fixed: ClassVar[Mapping[str, Any]] = {}
    # It models the annotator as drawing a class that is present, and takes `task.selection`.
    selective: ClassVar[bool] = False
    # It shows what knowing the truth is worth: it takes true frequencies and never estimated ones.
    oracle: ClassVar[bool] = False
    advice: ClassVar[str] = ""  # what to know before training with it, in a sentence or two
    keeps: ClassVar[str] = ""  # what it remembers from step to step besides the network, in words
    cost: ClassVar[float] = 1.0  # arithmetic of one step relative to AN, in its costliest stage

    def check(self, task: Task) -> None:
        """Raise an error for options out of range or a task that lacks what this method needs.

        Called before anything is written to disk.
        """
        for name, (low, high) in self.ranges.items():
            check_range(f"method.{name}", getattr(self, name), low, high)
        require(self, task)

    def informed(self, task: Task) -> Mapping[str, Any]:
        """The values of open options that follow from `task.priors`, which is not None here."""
        return {}

    def settled(self, task: Task) -> dict[str, Any]:
        """Options that may be left open, each with its value in this task.

        That is what somebody has set; else what follows from how frequent classes are, unless one
        of the `frequencies` is set, with which the method knows enough; else the fixed number.
        """
        values = dict(self.fixed)
        if task.priors is not None and awaits(type(self), vars(self)):
            values |= self.informed(task)
        set_here = {name: getattr(self, name) for name in self.fixed}
        return values | {name: value for name, value in set_here.items() if value is not None}

    def shortlist(self, task: Task) -> Mapping[str, Pilot]:
        """Short trainings that decide how to go on, by name; none by default.

        Asked for after `check`. The name of the one that explains the observed labels of validation
        images best is handed to `take`; of those that tie with it, the first.
        """
        return {}

    def take(self, name: str, lead: float) -> None:
        """Go on as this one of the shortlist; called before `head` and `setup`.

        Args:
            name: Its name on the shortlist.
            lead: By how much it explains a held-out label better than the best of the others, as a
                difference of log-likelihoods; below `adagc.choice.TIE` they tie.
        """

    def remarks(self, task: Task) -> Iterable[str]:
        """Sentences about this task for whoever starts the run: too few epochs, for example.

        They are logged before training, and nothing else happens.
        """
        return ()

    def setup(self, network: nn.Module, task: Task) -> None:
        """Build tables and further networks; called once, before training or resuming."""
        self.check(task)

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """The loss of one batch and its named parts."""

    def head(self) -> HeadSpec:
        """The kind of last layer this method needs; called before the network is built."""
        return HeadSpec()

    def after_step(self, network: nn.Module) -> None:
        """Called after every optimiser step, with the network itself, never a wrapper."""

    def reviews(self, progress: Progress) -> bool:
        """Whether `review` wants the predictions for all training images after this epoch."""
        return False

    def reviewed(self, network: nn.Module) -> nn.Module:
        """The network whose predictions for the training images `review` gets: the deployed one."""
        return self.deployed(network)

    def review(self, probabilities: Tensor, progress: Progress) -> None:
        """Use the (N, C) predictions of the `reviewed` network, made without augmentation.

        Called after each epoch for which `reviews` returns True.
        """

    def wants_validation(self, progress: Progress) -> bool:
        """Whether `see_validation` wants the validation predictions of this epoch."""
        return False

    def see_validation(self, probabilities: Tensor, observed: Tensor, progress: Progress) -> None:
        """Use validation predictions; called before reported networks are judged, then `end_epoch`.

        What is deployed may be chosen here. The watched network itself must not be changed.

        Args:
            probabilities: (V, C) predictions of the `watched` network for the validation images.
            observed: (V, C) int8, their labels: +1 present, 0 unobserved, -1 absent.
            progress: The epoch that has ended.
        """

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Decide how to go on, from the noisy validation scores of the `watched` network."""
        return Verdict.CONTINUE

    def restored(self, progress: Progress) -> None:
        """Called right after the loop went back to the snapshot this method asked for."""

    def chosen(self, network: nn.Module) -> nn.Module:
        """The network whose weights the trained one takes over when this method asks to RESTART."""
        return self.watched(network)

    def restarted(self, network: nn.Module, progress: Progress) -> None:
        """Called right after a RESTART: the network has its new weights, the optimiser is new."""

    def parameter_groups(self, network: nn.Module, lr: float) -> list[dict[str, Any]]:
        """What the optimiser trains, in groups with their own settings.

        Besides Adam's settings a group may have `clip=False`, which exempts its gradients from
        clipping.
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
        """(N, C) current label estimates of the training images; None if it keeps none."""
        return None

    def status(self) -> dict[str, Any]:
        """Values to store in the history for this epoch (stage, labels added, ...).

        A text under "remark" is also shown below tables, by `tune` and in reports: what a reader
        of the scores must know about how the run went, as the end of a sentence about it.
        """
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
    """Raise UnsuitedError if the task lacks something that the method's `needs` names."""
    for need, value in (("truth", task.truth), ("priors", task.priors), ("text", task.text)):
        if need in method.needs and value is None:
            key = "text" if need == "text" else "truth"
            remedy = {
                "truth": "give the clean labels of the training images",
                "priors": "let --priors estimate them, or give clean training labels",
                "text": "give embeddings of the class names, made by  adagc text",
            }[need]
            raise UnsuitedError(
                f"{method.title} needs {need}, which this task does not have: {remedy}"
                f" (--{key} FILE; in scenario.yaml {key}: FILE)"
            )


def missing_labels(task: Task) -> float:
    """Labels of a training image that nobody has observed, as a mean number: k less the observed.

    >>> observed = torch.tensor([[1, 0, 0, 0], [0, 0, 1, 0]])
    >>> task = Task(tuple("abcd"), observed, 1, 1, 0, priors=torch.tensor([0.5, 1.0, 0.75, 0.25]))
    >>> missing_labels(task)
    1.5
    """
    assert task.priors is not None
    observed = float((task.observed > 0).sum()) / len(task.observed)
    return max(0.0, float(task.priors.sum()) - observed)


def negative_share(task: Task) -> float:
    """Share of the unobserved entries that are negative: 1 - (k - 1) / (C - 1) with single labels.

    It is between 0 and 1, also where an estimate of k is not.
    """
    unobserved = float((task.observed == 0).sum()) / len(task.observed)
    return min(1.0, max(0.0, 1 - missing_labels(task) / max(unobserved, 1.0)))


def positives(observed: Tensor) -> Tensor:
    """(B, C) targets that assume negative: 1.0 where a class was observed, 0.0 elsewhere."""
    return (observed > 0).to(torch.float32)

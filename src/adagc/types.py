"""The nouns that travel between the parts: what a method sees, says and is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from adagc.ranks import Share


@dataclass(frozen=True)
class Batch:
    """One training batch, already augmented; values are raw, the network normalises them.

    All but the images is the same on every rank. Of the images a rank holds its share; networks,
    Mixup and strong views take a `Share` as they take a tensor (see `adagc.ranks`).
    """

    images: Tensor | Share  # (B, bands, H, W) or (B, D), float32 unless torch's default differs
    observed: Tensor  # (B, C) int8: +1 seen, 0 nobody looked, -1 seen to be absent
    index: Tensor  # (B,) int64: row of each image in the training table
    generator: torch.Generator  # the only randomness a method may use; alike on all ranks
    truth: Tensor | None = None  # (B, C) float32, only for methods that declare "truth"


@dataclass(frozen=True)
class Task:
    """All that training may know. Clean labels are here only if the method declares them."""

    classes: tuple[str, ...]
    observed: Tensor  # (N, C) int8, rows in training order
    epochs: int
    steps_per_epoch: int
    seed: int
    truth: Tensor | None = None  # (N, C) float32, needs "truth"
    # (C,) share of images that contain the class, for methods that take it: true or estimated
    priors: Tensor | None = None
    # (C,) how often the annotator writes a class down where it is there, relative to the others
    selection: Tensor | None = None
    text: Tensor | None = None  # (C, D) embeddings of the class names, needs "text"
    fresh: Callable[[int], nn.Module] | None = None  # another such network from another seed
    positions: int = (
        0  # of the finest map that a head can work on; 0 for embeddings, which have none
    )


@dataclass(frozen=True)
class Progress:
    """Where training stands."""

    epoch: int  # 1-based
    epochs: int
    step: int  # optimiser steps taken before this one, over the whole run
    steps_per_epoch: int


@dataclass(frozen=True)
class Losses:
    """What to minimise, and its named parts for the logs."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


class NetworkRole(Enum):
    """What a reported network is for, in the order in which tables show them."""

    DEPLOYED = "deployed"  # tested, saved and exported; every run has exactly one
    TEACHER = "teacher"  # what the deployed one learns from
    TRAINED = "trained"  # what the deployed one is an average of
    AVERAGE = "average"  # of the trained one's weights over steps
    OTHER = "other"


@dataclass(frozen=True)
class Reported:
    """A network worth a row in the table, what it is for, and how tables call it."""

    network: nn.Module
    role: NetworkRole = NetworkRole.OTHER
    title: str = ""  # the name under which it is reported if empty


class Milestone(NamedTuple):
    """An epoch that a reader of the curves should know."""

    epoch: int
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Story:
    """What a method's status means, for the marks on the curves and the words beside them."""

    milestones: tuple[Milestone, ...] = ()
    second_stage_after: int | None = None  # an epoch
    back: tuple[int, int] | None = None  # from the end of an epoch to that of an earlier one
    sentence: str = ""  # without a full stop


class Verdict(Enum):
    """What a method asks of the loop after an epoch."""

    CONTINUE = "continue"
    KEEP = "keep"  # snapshot network, method and optimiser
    RESTORE = "restore"  # go back to the snapshot, then go on
    RESTART = "restart"  # go on from the weights of the method's chosen network, optimiser anew
    STOP = "stop"  # train no further: what was asked for is known


@dataclass(frozen=True, eq=False)
class PerClass:
    """Metrics of every class, arrays of length C; `average_precision` is NaN without a positive."""

    average_precision: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]  # true positives in the data
    predicted: NDArray[np.int64]  # positives at the threshold

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PerClass):
            return NotImplemented
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # arrays have none

    def to_dict(self) -> dict[str, list[float | int | None]]:
        """Plain lists for JSON, NaN as None."""
        return {
            name: [None if value != value else value for value in getattr(self, name).tolist()]
            for name in self.__dataclass_fields__
        }


@dataclass(frozen=True, repr=False)
class Scores:
    """The seven metrics of the paper as fractions (coverage: a count of labels), and others.

    `scores["hamming_loss"]` is the value of any metric by its key.
    """

    mean_average_precision: float
    coverage: float
    ranking_loss: float
    overall_accuracy: float
    mean_f1: float
    mean_precision: float
    mean_recall: float
    per_class: PerClass
    extra: Mapping[str, float] = field(default_factory=dict)  # of registered metrics, by key

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value:.4g}" for name, value in self.summary().items())
        return f"Scores({numbers}; {len(self.per_class.support)} classes)"

    def __getitem__(self, key: str) -> float:
        return self.summary()[key]

    @property
    def never_predicted(self) -> int:
        """Classes without a positive at the threshold; their precision and F1 count as 0."""
        return int((self.per_class.predicted == 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the per-class table."""
        return {**self.summary(), "per_class": self.per_class.to_dict()}

    def summary(self) -> dict[str, float]:
        """One number per metric, without the per-class table."""
        return {name: getattr(self, name) for name in self._seven()} | dict(self.extra)

    @classmethod
    def _seven(cls) -> list[str]:
        return [name for name in cls.__dataclass_fields__ if name not in ("per_class", "extra")]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scores:
        """The inverse of `to_dict`; a metric that was not known when it was written is absent."""
        table = values["per_class"]

        def rates(name: str) -> NDArray[np.float64]:
            return np.array([np.nan if value is None else value for value in table[name]], float)

        def counts(name: str) -> NDArray[np.int64]:
            return np.array(table[name], np.int64)

        per_class = PerClass(
            average_precision=rates("average_precision"),
            precision=rates("precision"),
            recall=rates("recall"),
            f1=rates("f1"),
            support=counts("support"),
            predicted=counts("predicted"),
        )
        seven = {name: values[name] for name in cls._seven()}
        # Whatever else is a fraction: an entry of scores.json has whole numbers (epoch) beside it.
        extra = {
            name: value
            for name, value in values.items()
            if name not in seven and isinstance(value, float)
        }
        return cls(**seven, per_class=per_class, extra=extra)


class HasRole(Protocol):
    """Anything that knows the role of a network."""

    @property
    def role(self) -> NetworkRole:
        """What it is for."""


def in_order(networks: Mapping[str, HasRole]) -> list[str]:
    """Names of reported networks as tables show them: the deployed one first."""
    order = tuple(NetworkRole)
    return sorted(networks, key=lambda name: (order.index(networks[name].role), name))


def with_role(networks: Mapping[str, HasRole], role: NetworkRole) -> str | None:
    """The name of the network that has this role, the first by name if several have it."""
    return next((name for name in sorted(networks) if networks[name].role is role), None)

"""history.jsonl: one line per epoch, and what the oracle says in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from adagc.errors import AdagcError
from adagc.training.records.common import (
    FORMAT,
    NamedRole,
    Summary,
    check_format,
    parse,
    roles_of,
    roles_to_dict,
)
from adagc.types import NetworkRole, Verdict, with_role

Column = tuple[float | None, ...]  # a number per class, None where it is undefined


@dataclass(frozen=True)
class ClassCounts:
    """Validation labels per class."""

    true: tuple[int, ...]
    flipped: tuple[int, ...]  # true ones that were not observed
    wrong: tuple[int, ...]  # observed ones that are not true

    def to_dict(self) -> dict[str, list[Any]]:
        """JSON-ready."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClassCounts:
        """The inverse of `to_dict`."""
        return cls(*(tuple(map(int, values[one.name])) for one in fields(cls)))


@dataclass(frozen=True)
class ClassScores:
    """One network's scores per class; alpha and recall at the threshold."""

    clean_ap: Column
    noisy_ap: Column
    recall: Column  # the share of the true labels that is predicted
    alpha: Column  # the share of the flipped labels that is predicted

    def to_dict(self) -> dict[str, list[Any]]:
        """JSON-ready."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClassScores:
        """The inverse of `to_dict`."""
        return cls(*(tuple(values[one.name]) for one in fields(cls)))


@dataclass(frozen=True)
class PseudoLabelQuality:
    """How well a method's estimates recover the labels that were not observed."""

    mean_average_precision: float
    precision: float
    recall: float
    f1: float
    added_per_image: float

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PseudoLabelQuality:
        """The inverse of `asdict`."""
        return cls(*(float(values[one.name]) for one in fields(cls)))


@dataclass(frozen=True)
class OracleRecord:
    """What the clean labels say of an epoch, as far as there are any."""

    validation: Mapping[str, Summary] = field(default_factory=dict)  # by network
    labels: ClassCounts | None = None
    classes: Mapping[str, ClassScores] = field(default_factory=dict)  # by network
    pseudo_labels: PseudoLabelQuality | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what the oracle could not see is left out."""
        record: dict[str, Any] = {}
        if self.validation:
            record["validation"] = {name: one.to_dict() for name, one in self.validation.items()}
        if self.labels is not None:
            record["labels"] = self.labels.to_dict()
        if self.classes:
            record["classes"] = {name: one.to_dict() for name, one in self.classes.items()}
        if self.pseudo_labels is not None:
            record["pseudo_labels"] = asdict(self.pseudo_labels)
        return record

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> OracleRecord:
        """The inverse of `to_dict`."""
        labels, pseudo_labels = values.get("labels"), values.get("pseudo_labels")
        return cls(
            {name: Summary.from_dict(one) for name, one in values.get("validation", {}).items()},
            None if labels is None else ClassCounts.from_dict(labels),
            {name: ClassScores.from_dict(one) for name, one in values.get("classes", {}).items()},
            None if pseudo_labels is None else PseudoLabelQuality.from_dict(pseudo_labels),
        )


@dataclass(frozen=True)
class EpochRecord:
    """One line of history.jsonl."""

    epoch: int
    losses: Mapping[str, float] = field(default_factory=dict)  # means over the steps, by part
    noisy: Mapping[str, Summary] = field(default_factory=dict)  # validation, by network
    roles: Mapping[str, NamedRole] = field(default_factory=dict)  # of these networks
    learning_rate: float = 0.0
    oracle: OracleRecord | None = None  # None if nobody watched
    verdict: Verdict = Verdict.CONTINUE
    status: Mapping[str, Any] = field(default_factory=dict)  # what the method says of itself
    train_seconds: float = 0.0  # of the steps alone
    seconds: float = 0.0

    @property
    def deployed(self) -> str:
        """The name of the deployed network."""
        return with_role(self.roles, NetworkRole.DEPLOYED) or "network"

    def noisy_of(self, role: NetworkRole) -> Summary | None:
        """Validation scores on the observed labels of the network in this role."""
        return self.noisy.get(with_role(self.roles, role) or "")

    def clean_of(self, role: NetworkRole) -> Summary | None:
        """Validation scores on clean labels of the network in this role."""
        seen = {} if self.oracle is None else self.oracle.validation
        return seen.get(with_role(self.roles, role) or "")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "losses": dict(self.losses),
            "noisy": {name: one.to_dict() for name, one in self.noisy.items()},
            "roles": roles_to_dict(self.roles),
            "learning_rate": self.learning_rate,
            **({} if self.oracle is None else {"oracle": self.oracle.to_dict()}),
            "verdict": self.verdict.value,
            "status": dict(self.status),
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EpochRecord:
        """The inverse of `to_dict`; whatever a line does not say but its epoch is empty."""
        check_format(values, "a line of history.jsonl")
        oracle = values.get("oracle")
        noisy = {name: Summary.from_dict(one) for name, one in values.get("noisy", {}).items()}
        watched = None if oracle is None else OracleRecord.from_dict(oracle)
        names = dict.fromkeys([*noisy, *(watched.classes if watched is not None else ())])
        return cls(
            epoch=int(values["epoch"]),
            losses=dict(values.get("losses", {})),
            noisy=noisy,
            roles=roles_of(values, names),
            learning_rate=float(values.get("learning_rate", 0.0)),
            oracle=watched,
            verdict=Verdict(values.get("verdict", "continue")),
            status=dict(values.get("status", {})),
            train_seconds=float(values.get("train_seconds", 0.0)),
            seconds=float(values.get("seconds", 0.0)),
        )


def parse_history(content: bytes, what: str) -> list[tuple[str, EpochRecord]]:
    """The lines of history.jsonl and what they say, one per finished epoch.

    Only the last line may be cut off, where a run was killed while it wrote; it does not count.
    """
    lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    remedy = "remove that line, or choose another --out and train again"
    found = []
    for number, line in enumerate(lines, 1):
        where = f"{what}, line {number},"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise AdagcError(f"{where} is damaged ({error}): {remedy}") from None
        found.append((line, parse(EpochRecord, values, where, remedy)))
    return found

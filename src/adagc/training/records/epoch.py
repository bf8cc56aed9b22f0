"""The lines of history.jsonl, one per epoch, including scores on clean labels where known."""

from __future__ import annotations

import json
import math
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

Column = tuple[float | None, ...]  # one number per class, None where it is undefined


@dataclass(frozen=True)
class ClassCounts:
    """Number of validation labels of each class, as far as clean labels are known."""

    true: tuple[int, ...]
    flipped: tuple[int, ...]  # true labels that were not observed
    wrong: tuple[int, ...]  # observed labels that are not true

    def to_dict(self) -> dict[str, list[Any]]:
        """The values as a dictionary for JSON."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClassCounts:
        """The inverse of `to_dict`."""
        return cls(*(tuple(map(int, values[one.name])) for one in fields(cls)))


@dataclass(frozen=True)
class ClassScores:
    """Validation scores of one network per class; alpha and recall at threshold 0.5."""

    clean_ap: Column  # average precision on clean labels
    noisy_ap: Column  # average precision on observed labels
    recall: Column  # share of the true labels that are predicted
    alpha: Column  # share of the flipped labels that are predicted

    def to_dict(self) -> dict[str, list[Any]]:
        """The values as a dictionary for JSON."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClassScores:
        """The inverse of `to_dict`."""
        return cls(*(tuple(values[one.name]) for one in fields(cls)))


@dataclass(frozen=True)
class PseudoLabelQuality:
    """How well a method's estimates recover the positive labels that were not observed."""

    mean_average_precision: float  # over all labels, observed or not
    precision: float  # share of the added labels that are true
    recall: float  # share of the missing labels that are added
    f1: float
    added_per_image: float  # mean number of labels that are added to an image

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PseudoLabelQuality:
        """The inverse of `asdict`."""
        return cls(*(float(values[one.name]) for one in fields(cls)))


@dataclass(frozen=True)
class OracleRecord:
    """Scores of an epoch on clean labels, as far as there are any."""

    validation: Mapping[str, Summary] = field(default_factory=dict)  # by network
    labels: ClassCounts | None = None
    classes: Mapping[str, ClassScores] = field(default_factory=dict)  # by network
    pseudo_labels: PseudoLabelQuality | None = None

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON; values that are not known are left out."""
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
    losses: Mapping[str, float] = field(default_factory=dict)  # means over steps, by part
    noisy: Mapping[str, Summary] = field(default_factory=dict)  # noisy validation, by network
    # By network and name: `adagc.metrics.CRITERIA`, by which epochs and options are chosen.
    criteria: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    roles: Mapping[str, NamedRole] = field(default_factory=dict)  # roles of these networks
    learning_rate: float = 0.0
    oracle: OracleRecord | None = None  # scores on clean labels; None if they were not recorded
    verdict: Verdict = Verdict.CONTINUE
    status: Mapping[str, Any] = field(default_factory=dict)  # what the method reports of itself
    train_seconds: float = 0.0  # time of the optimiser steps only
    seconds: float = 0.0  # time of the whole epoch

    @property
    def deployed(self) -> str:
        """The name of the deployed network."""
        return with_role(self.roles, NetworkRole.DEPLOYED) or "network"

    @property
    def remark(self) -> str:
        """What the method says a reader of the scores must know; empty if nothing."""
        return str(self.status.get("remark") or "")

    @property
    def in_words(self) -> str:
        """The noisy score of every network and the stage of the method, for those who watch."""
        scores = {
            name: f"{100 * one.mean_average_precision:.1f}" for name, one in self.noisy.items()
        }
        if len(scores) > 1:
            scores = {name: f"{self.roles[name].title} {one}" for name, one in scores.items()}
        stage = self.status.get("stage")
        return f"noisy mAP {', '.join(scores.values())}" + (f", {stage}" if stage else "")

    def noisy_of(self, role: NetworkRole) -> Summary | None:
        """Validation scores on observed labels of the network with this role, if there is one."""
        return self.noisy.get(with_role(self.roles, role) or "")

    def criterion(self, name: str, network: str | None = None) -> float:
        """The value of a criterion that chooses epochs and options; larger is better.

        NaN if the version of adagc that wrote the line did not know it.

        Args:
            name: Name of the criterion.
            network: Name of the network; the deployed one by default.
        """
        return self.criteria.get(network or self.deployed, {}).get(name, math.nan)

    def clean_of(self, role: NetworkRole) -> Summary | None:
        """Validation scores on clean labels of the network with this role, if they are known."""
        validation = {} if self.oracle is None else self.oracle.validation
        return validation.get(with_role(self.roles, role) or "")

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "losses": dict(self.losses),
            "noisy": {name: one.to_dict() for name, one in self.noisy.items()},
            "criteria": {name: dict(values) for name, values in self.criteria.items()},
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
        """The inverse of `to_dict`; all values but `epoch` have defaults for lines without them."""
        check_format(values, "a line of history.jsonl")
        oracle = values.get("oracle")
        noisy = {name: Summary.from_dict(one) for name, one in values.get("noisy", {}).items()}
        watched = None if oracle is None else OracleRecord.from_dict(oracle)
        names = dict.fromkeys([*noisy, *(watched.classes if watched is not None else ())])
        return cls(
            epoch=int(values["epoch"]),
            losses=dict(values.get("losses", {})),
            noisy=noisy,
            criteria=_criteria(values, noisy),
            roles=roles_of(values, names),
            learning_rate=float(values.get("learning_rate", 0.0)),
            oracle=watched,
            verdict=Verdict(values.get("verdict", "continue")),
            status=dict(values.get("status", {})),
            train_seconds=float(values.get("train_seconds", 0.0)),
            seconds=float(values.get("seconds", 0.0)),
        )


def _criteria(
    values: Mapping[str, Any], noisy: Mapping[str, Summary]
) -> dict[str, dict[str, float]]:
    """The criteria by network; lines from before there were any have two of them as metrics."""
    given = values.get("criteria")
    if given is not None:
        return {
            network: {str(name): float(value) for name, value in one.items()}
            for network, one in given.items()
        }
    return {
        network: {"noisy-map": one.mean_average_precision, "rank": 1 - one["ranking_loss"]}
        for network, one in noisy.items()
    }


def parse_history(content: bytes, what: str) -> list[tuple[str, EpochRecord]]:
    """The lines of history.jsonl, each as text and as a record.

    A last line that is cut off, because the run was killed while writing it, is left out. Any other
    damage raises AdagcError.

    Args:
        content: Content of the file.
        what: Name of the file, for error messages.
    """
    lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    remedy = "remove that line, or choose another --out and train again"
    records = []
    for number, line in enumerate(lines, 1):
        where = f"{what}, line {number},"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise AdagcError(f"{where} is damaged ({error}): {remedy}") from None
        records.append((line, parse(EpochRecord, values, where, remedy)))
    return records

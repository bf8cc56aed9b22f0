"""What a run is made from and comes to: config.yaml, labels.json, model.json and scores.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from adagc.labels import FlipRates
from adagc.training.records.common import (
    FORMAT,
    NamedRole,
    check_format,
    roles_of,
    roles_to_dict,
)
from adagc.types import NetworkRole, Scores, with_role

Choice = Literal["last", "best"]
_USUAL = 0.5  # the threshold that is written once; a model's own are written class by class


@dataclass(frozen=True, eq=False)
class TestedEpoch:
    """Test scores of a network as it was after an epoch."""

    epoch: int
    scores: Scores


@dataclass(frozen=True, eq=False)
class TestedNetwork:
    """A network at its last epoch and at its best one by noisy validation."""

    role: NetworkRole
    title: str
    epochs: Mapping[Choice, TestedEpoch]


@dataclass(frozen=True, eq=False)
class TestRecord:
    """scores.json: scores on clean labels."""

    split: str
    images: int
    thresholds: tuple[float, ...]  # from which probability on a class counts as predicted
    classes: tuple[str, ...]
    method: str
    networks: Mapping[str, TestedNetwork]

    @property
    def threshold(self) -> float | None:
        """The one that all classes share; None if they differ."""
        return self.thresholds[0] if len(set(self.thresholds)) == 1 else None

    @property
    def own_thresholds(self) -> bool:
        """Whether the model has others than the usual one."""
        return self.threshold != _USUAL

    def scores_of(self, role: NetworkRole, choice: Choice) -> Scores | None:
        """Of the network in this role at this epoch, if there is one."""
        name = with_role(self.networks, role)
        at = None if name is None else self.networks[name].epochs.get(choice)
        return None if at is None else at.scores

    @property
    def final(self) -> Scores | None:
        """Those of the deployed network after the last epoch, which every headline is about."""
        return self.scores_of(NetworkRole.DEPLOYED, "last")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        roles = {name: NamedRole(one.role, one.title) for name, one in self.networks.items()}
        return {
            "format": FORMAT,
            "split": self.split,
            "images": self.images,
            **(
                {"thresholds": list(self.thresholds)}
                if self.own_thresholds
                else {"threshold": _USUAL}
            ),
            "classes": list(self.classes),
            "method": self.method,
            "roles": roles_to_dict(roles),
            "networks": {
                name: {
                    choice: {"epoch": tested.epoch, **tested.scores.to_dict()}
                    for choice, tested in one.epochs.items()
                }
                for name, one in self.networks.items()
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TestRecord:
        """The inverse of `to_dict`."""
        check_format(values, "scores.json")
        classes = tuple(values["classes"])
        limits = values.get("thresholds") or [values["threshold"]] * len(classes)
        roles = roles_of(values, values["networks"])
        return cls(
            split=str(values["split"]),
            images=int(values["images"]),
            thresholds=tuple(map(float, limits)),
            classes=classes,
            method=str(values["method"]),
            networks={
                name: TestedNetwork(
                    roles[name].role,
                    roles[name].title,
                    {
                        choice: TestedEpoch(int(one["epoch"]), Scores.from_dict(one))
                        for choice, one in choices.items()
                    },
                )
                for name, choices in values["networks"].items()
            },
        )


@dataclass(frozen=True)
class ModelRecord:
    """What model.json says of the run that made the model, beside the model itself."""

    method: str
    best_epoch: Mapping[str, int]  # by network
    epochs: int
    training_seconds: float
    roles: Mapping[str, NamedRole]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "format": FORMAT,
            "method": self.method,
            "best_epoch": dict(self.best_epoch),
            "epochs": self.epochs,
            "training_seconds": self.training_seconds,
            "roles": roles_to_dict(self.roles),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelRecord:
        """The inverse of `to_dict`."""
        check_format(values, "model.json")
        best = {name: int(epoch) for name, epoch in values["best_epoch"].items()}
        return cls(
            method=str(values["method"]),
            best_epoch=best,
            epochs=int(values["epochs"]),
            training_seconds=float(values["training_seconds"]),
            roles=roles_of(values, best),
        )


@dataclass(frozen=True)
class ImageCounts:
    """How many images each split has, and how many of them no label names."""

    train: int
    val: int
    test: int
    left_out: int


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """labels.json: what was observed, and how far it is from the truth where that is known."""

    hash: str
    classes: tuple[str, ...]
    images: ImageCounts
    observed_counts: tuple[int, ...]  # per class, of the training images
    source: str | None = None
    flip_rates: FlipRates | None = None
    meta: Mapping[str, str] = field(default_factory=dict)  # what the label file says of itself

    @property
    def scheme(self) -> str | None:
        """How the labels were simulated, where they were."""
        return self.meta.get("scheme")

    @property
    def seed(self) -> str | None:
        """Of that simulation."""
        return self.meta.get("seed")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        record: dict[str, Any] = {
            **self.meta,
            "format": FORMAT,
            "hash": self.hash,
            "source": self.source,
            "classes": list(self.classes),
            "images": asdict(self.images),
            "observed_counts": list(self.observed_counts),
        }
        if self.flip_rates is not None:
            record["flip_rates"] = self.flip_rates.to_dict()
        return record

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabelSummary:
        """The inverse of `to_dict`."""
        check_format(values, "labels.json")
        rates, images = values.get("flip_rates"), values["images"]
        own = {*cls.__dataclass_fields__, "format"}
        return cls(
            hash=str(values["hash"]),
            classes=tuple(values["classes"]),
            images=ImageCounts(
                **{key: int(images[key]) for key in ImageCounts.__dataclass_fields__}
            ),
            observed_counts=tuple(map(int, values["observed_counts"])),
            source=values.get("source"),
            flip_rates=None if rates is None else FlipRates.from_dict(rates),
            meta={key: str(value) for key, value in values.items() if key not in own},
        )


@dataclass(frozen=True)
class RunSettings:
    """config.yaml: the method with its options, and every other setting by its name.

    It has no format number of its own, because people write such files too: `adagc train --config`
    reads it.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """A setting, None if the run's version did not know it."""
        return self.settings.get(name)

    @property
    def epochs(self) -> int:
        """How many were asked for."""
        return int(self.settings["epochs"])

    @property
    def data(self) -> str:
        """Kind of data set."""
        return str(self["data"] or "")

    @property
    def oracle(self) -> bool:
        """Whether clean scores were to be recorded."""
        return bool(self.settings.get("oracle", True))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSettings:
        """From all settings, the method's own as a dictionary with its title."""
        check_format(values, "config.yaml")
        own = values.get("method", {})
        given = dict(own) if isinstance(own, Mapping) else {"title": own}
        title = str(given.pop("title", "unknown method"))
        rest = {key: value for key, value in values.items() if key != "method"}
        return cls(title, given, rest)

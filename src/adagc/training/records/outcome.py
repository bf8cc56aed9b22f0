"""Settings and results of a run: config.yaml, labels.json, model.json and scores.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from adagc.errors import examples
from adagc.labels import FlipRates
from adagc.tables import Table
from adagc.training.records.common import (
    FORMAT,
    NamedRole,
    check_format,
    roles_of,
    roles_to_dict,
)
from adagc.types import NetworkRole, Scores, in_order, with_role

Choice = Literal["last", "best"]
# What a setting was before it existed; config.yaml of a run from that time does not name it.
FORMER: Mapping[str, Any] = MappingProxyType(
    {"select": "noisy-map", "thresholds": "half", "priors": "published"}
)
_USUAL = 0.5  # default threshold; if all classes have it, it is written once, not per class


@dataclass(frozen=True, eq=False)
class TestedEpoch:
    """Test scores of a network with its weights after an epoch."""

    epoch: int
    scores: Scores
    thresholds: tuple[float, ...] | None = None  # per class; None: those of the deployed network


@dataclass(frozen=True, eq=False)
class TestedNetwork:
    """Test scores of a network: after the last epoch, and after its best by noisy validation."""

    role: NetworkRole
    title: str
    epochs: Mapping[Choice, TestedEpoch]


@dataclass(frozen=True, eq=False, repr=False)
class TestRecord:
    """The content of scores.json: scores of all networks on clean labels."""

    split: str
    images: int
    # Per class: probability from which on the deployed network predicts it.
    thresholds: tuple[float, ...]
    classes: tuple[str, ...]
    method: str
    networks: Mapping[str, TestedNetwork]
    other_data: bool = False  # tested on images that are not those of the run
    thresholds_from: str = ""  # "half", "estimated" or a file, if they are not the run's own

    @property
    def threshold(self) -> float | None:
        """The threshold of all classes; None if classes have different ones."""
        return self.thresholds[0] if len(set(self.thresholds)) == 1 else None

    @property
    def own_thresholds(self) -> bool:
        """Whether a class has another threshold than the default of 0.5."""
        return self.threshold != _USUAL

    @property
    def limits_remark(self) -> str:
        """A sentence that says where thresholds come from; empty if all are one half."""
        if not self.own_thresholds:
            return ""
        if self.thresholds_from in ("", "estimated"):
            return "Thresholds of classes are estimates from observed labels."
        return f"Thresholds of classes are those of {self.thresholds_from}."

    def scores_of(self, role: NetworkRole, choice: Choice) -> Scores | None:
        """Scores of the network with this role after its last or best epoch; None without one."""
        name = with_role(self.networks, role)
        tested = None if name is None else self.networks[name].epochs.get(choice)
        return None if tested is None else tested.scores

    @property
    def final(self) -> Scores | None:
        """Scores of the deployed network after the last epoch, the main result of a run."""
        return self.scores_of(NetworkRole.DEPLOYED, "last")

    def __repr__(self) -> str:
        return f"TestRecord({self.method}, {self.split}, {self.images} images: {self.final!r})"

    def table(self) -> Table:
        """A row for every network and epoch that was tested, with a column for every metric."""
        rows: list[dict[str, Any]] = [
            {
                "network": one.title,
                "role": one.role.value,
                "weights": choice,
                "epoch": at.epoch,
                **at.scores.summary(),
            }
            for one in (self.networks[name] for name in in_order(self.networks))
            for choice, at in sorted(one.epochs.items(), reverse=True)  # the last one first
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        return Table(columns)

    @property
    def absent(self) -> tuple[str, ...]:
        """Classes that no tested image contains, which the mean average precision leaves out."""
        tested = (at.scores for one in self.networks.values() for at in one.epochs.values())
        support = next((scores.per_class.support.tolist() for scores in tested), ())
        return tuple(name for name, count in zip(self.classes, support, strict=False) if not count)

    @property
    def remark(self) -> str:
        """A sentence that says which classes are left out; empty if none is."""
        return fewer_classes(self.absent, len(self.classes))

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        roles = {name: NamedRole(one.role, one.title) for name, one in self.networks.items()}
        return {
            "format": FORMAT,
            "split": self.split,
            "images": self.images,
            **({"other_data": True} if self.other_data else {}),
            **({"thresholds_from": self.thresholds_from} if self.thresholds_from else {}),
            **(
                {"thresholds": list(self.thresholds)}
                if self.own_thresholds
                else {"threshold": _USUAL}
            ),
            "classes": list(self.classes),
            "absent": list(self.absent),  # for other readers; here it follows from the scores
            "method": self.method,
            "roles": roles_to_dict(roles),
            "networks": {
                name: {
                    choice: {
                        "epoch": tested.epoch,
                        **({"thresholds": list(tested.thresholds)} if tested.thresholds else {}),
                        **tested.scores.to_dict(),
                    }
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
                        choice: TestedEpoch(
                            int(one["epoch"]),
                            Scores.from_dict(one),
                            None if (own := one.get("thresholds")) is None else tuple(own),
                        )
                        for choice, one in choices.items()
                    },
                )
                for name, choices in values["networks"].items()
            },
            other_data=bool(values.get("other_data", False)),
            thresholds_from=str(values.get("thresholds_from", "")),
        )


def fewer_classes(absent: Sequence[str], total: int) -> str:
    """A sentence about classes that no tested image contains; empty if there are none.

    Args:
        absent: Names of these classes.
        total: Number of all classes.
    """
    if not absent:
        return ""
    return (
        f"mAP is the mean over {total - len(absent)} of {total} classes: no tested image contains"
        f" {examples(absent, 10)}. mF1, mPrec and mRec count these classes as 0."
    )


@dataclass(frozen=True)
class ModelRecord:
    """The part of model.json about the run in which the model was trained."""

    method: str
    best_epoch: Mapping[str, int]  # by network
    epochs: int
    training_seconds: float
    roles: Mapping[str, NamedRole]
    remark: str = ""  # what the method says a reader of the scores must know
    cpu_seconds: float | None = None  # None on a GPU, and in files of older versions
    trained_on: int | None = None  # side of the image files in pixels, before they were resized

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return {
            "format": FORMAT,
            "method": self.method,
            "best_epoch": dict(self.best_epoch),
            "epochs": self.epochs,
            "training_seconds": self.training_seconds,
            "cpu_seconds": self.cpu_seconds,
            "roles": roles_to_dict(self.roles),
            "remark": self.remark,
            "trained_on": self.trained_on,
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
            remark=str(values.get("remark", "")),
            cpu_seconds=None if (used := values.get("cpu_seconds")) is None else float(used),
            trained_on=None if (side := values.get("trained_on")) is None else int(side),
        )


@dataclass(frozen=True)
class ImageCounts:
    """How many images serve for what, and how many of them have which labels.

    Runs of older versions did not record all of it: those numbers are None.
    """

    train: int  # all of them with a positive label
    val: int  # all of them with a positive label
    test: int
    left_out: int  # training and validation images without a positive label
    train_clean: int | None = None  # with clean labels, too
    val_clean: int | None = None  # with clean labels, too
    test_clean: int | None = None  # with clean labels
    test_labelled: int | None = None  # with a positive label

    @property
    def sentence(self) -> str:
        """What the images are for, and how many of them have which labels."""
        return (
            f"{self.train:,} images for training, {self.val:,} for validation, {self.test:,} for"
            f" testing; {self.kinds}"
        )

    @property
    def kinds(self) -> str:
        """How many images for training / validation / testing have which labels."""
        if self.test_labelled is None or self.test_clean is None:
            return ""
        return (
            f"labelled: {self.train:,} / {self.val:,} / {self.test_labelled:,}; with clean labels:"
            f" {self.train_clean:,} / {self.val_clean:,} / {self.test_clean:,}"
        )


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """The content of labels.json: numbers about the observed labels and their errors, if known."""

    hash: str
    classes: tuple[str, ...]
    images: ImageCounts
    observed_counts: tuple[int, ...]  # positive labels of the training images, per class
    source: str | None = None  # name of the file that the labels come from
    flip_rates: FlipRates | None = None
    meta: Mapping[str, str] = field(default_factory=dict)  # further information in the label file

    @property
    def scheme(self) -> str | None:
        """How the labels were simulated; None if they were not."""
        return self.meta.get("scheme")

    @property
    def seed(self) -> str | None:
        """Seed of the simulation; None if the labels were not simulated."""
        return self.meta.get("seed")

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
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
        counted = [key for key in ImageCounts.__dataclass_fields__ if images.get(key) is not None]
        return cls(
            hash=str(values["hash"]),
            classes=tuple(values["classes"]),
            images=ImageCounts(**{key: int(images[key]) for key in counted}),
            observed_counts=tuple(map(int, values["observed_counts"])),
            source=values.get("source"),
            flip_rates=None if rates is None else FlipRates.from_dict(rates),
            meta={key: str(value) for key, value in values.items() if key not in own},
        )


@dataclass(frozen=True)
class RunSettings:
    """The content of config.yaml: the method with its options, and all other settings by name.

    config.yaml has no format number, because `adagc train --config` reads such files and users
    write them, too.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """The value of a setting; None if the version that wrote the file did not know it."""
        return self.settings.get(name)

    @property
    def epochs(self) -> int:
        """Number of epochs that the run was started for."""
        return int(self.settings["epochs"])

    @property
    def data(self) -> str:
        """Kind of the data set, such as "folder"."""
        return str(self["data"] or "")

    @property
    def select(self) -> str:
        """Name of the criterion that chose the best epoch."""
        return str(self["select"] or FORMER["select"])

    @property
    def oracle(self) -> bool:
        """Whether scores on clean labels were recorded in every epoch."""
        return bool(self.settings.get("oracle", True))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSettings:
        """Make it from the content of config.yaml, in which `method` is a title or a block."""
        check_format(values, "config.yaml")
        own = values.get("method", {})
        given = dict(own) if isinstance(own, Mapping) else {"title": own}
        title = str(given.pop("title", "unknown method"))
        rest = {key: value for key, value in values.items() if key != "method"}
        return cls(title, given, rest)

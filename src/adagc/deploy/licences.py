"""Under which terms a trained model may be used, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from adagc.datasets.registry import find, names
from adagc.models.vision import import_timm

_UNKNOWN = ("", "UNKNOWN", "unknown", "None")


@dataclass(frozen=True)
class Licences:
    """Sentences about the two things a model is made from."""

    data: str
    weights: str

    @property
    def note(self) -> str:
        """Both, and what they mean for the model."""
        return f"{self.data} {self.weights} The model may be used as far as these terms allow it."


def licences(data: str, weights: str) -> Licences:
    """What is known of a model's licences.

    Args:
        data: The data set that it was trained on, as `--data` names it.
        weights: Where its initial weights came from, as in `ModelSpec.weights`.
    """
    known = find(data).licence if data in names() else ""
    own = "The licence of the training images is not known here: ask their owner."
    return Licences(data=known or own, weights=_weights(weights))


def _weights(source: str) -> str:
    kind, _, name = source.partition(":")
    if kind == "none":
        return "The network was trained from random weights."
    if kind == "registry":
        package = name.split()[0]
        return f"Its initial weights are of the package {name}, {_licensed(_of_package(package))}."
    if kind == "hub":
        return f"Its initial weights are timm's {name}, {_licensed(_of_hub(name))}."
    return f"Its initial weights came from {name or source}, {_licensed(None)}."


def _licensed(licence: str | None) -> str:
    return f"licence {licence}" if licence else "whose licence is not known here"


def _of_package(package: str) -> str | None:
    try:
        about = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return None
    told = (about[key] for key in ("License-Expression", "License") if key in about)
    return next((text for text in told if text not in _UNKNOWN), None)


def _of_hub(name: str) -> str | None:
    config = import_timm().get_pretrained_cfg(name)
    licence = None if config is None else getattr(config, "license", None)
    return None if licence in (None, *_UNKNOWN) else str(licence)

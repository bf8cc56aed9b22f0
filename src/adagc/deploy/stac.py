"""A STAC Item that describes a model by the Machine Learning Model extension (MLM).

https://github.com/stac-extensions/mlm; catalogues find models by it, and programs learn what to
feed them with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from adagc.deploy.facts import ModelFacts

STAC = "model.stac.json"
MLM = "https://stac-extensions.github.io/mlm/v1.5.0/schema.json"
_FILE = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
_TASKS = ["classification", "scene-classification"]
_SHA256 = "1220"  # how a multihash begins: SHA-256, 32 bytes
# Versions as the extension wants them; others are left out.
_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


@dataclass(frozen=True)
class Asset:
    """A file beside the item."""

    name: str
    title: str
    content: bytes
    media: str = "application/octet-stream"
    artifact: str = ""  # how a model was written, such as "torch.export.save"; empty for others
    framework: tuple[str, str] | None = None  # what runs it, and its version

    def to_dict(self, bands: Sequence[str]) -> dict[str, Any]:
        """The entry under `assets`, of a model that takes these bands."""
        model: dict[str, Any] = {}
        if self.artifact:
            model["mlm:artifact_type"] = self.artifact
            model |= _framework(self.framework)
            # The extension wants bands in the item, which STAC allows if an asset has some, too.
            model |= {"bands": [{"name": name} for name in bands]} if bands else {}
        return {
            "href": f"./{self.name}",
            "type": self.media,
            "title": self.title,
            "roles": ["mlm:model", "mlm:weights"] if self.artifact else ["metadata"],
            "file:size": len(self.content),
            "file:checksum": f"{_SHA256}{hashlib.sha256(self.content).hexdigest()}",
            **model,
        }


@dataclass(frozen=True)
class Description:
    """What the item says beside the facts that are in the model itself."""

    name: str  # of the model, for people
    about: str  # a sentence
    architecture: str
    pretrained: str | None  # where the initial weights came from; None if they were random
    parameters: int  # number of weights
    mean: Sequence[float]  # of the values, which the model subtracts itself
    std: Sequence[float]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    framework: tuple[str, str] | None = None


def item(facts: ModelFacts, about: Description, assets: Sequence[Asset]) -> dict[str, Any]:
    """The item as a dictionary for JSON.

    It has no geometry: where a model may be used is not known.

    Args:
        facts: What is in the model itself.
        about: What else is known.
        assets: The files beside the item.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256(b"".join(asset.content for asset in assets)).hexdigest()
    bands = _bands(facts, about)
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [MLM, _FILE],
        "id": f"{slug(about.name).lower()}-{digest[:8]}",
        "geometry": None,
        "properties": {
            "datetime": now,
            "created": now,
            "title": about.name,
            "description": f"{about.about} {facts.licence}".strip(),
            "license": "other",
            **({"bands": bands} if bands else {}),
            "mlm:name": _plain(about.name),
            "mlm:architecture": about.architecture,
            "mlm:tasks": _TASKS,
            **_framework(about.framework),
            "mlm:total_parameters": about.parameters,
            "mlm:pretrained": about.pretrained is not None,
            "mlm:pretrained_source": about.pretrained,
            "mlm:batch_size_suggestion": 64,
            "mlm:accelerator": None,
            "mlm:accelerator_constrained": False,
            "mlm:input": [_input(facts)],
            "mlm:output": [_output(facts)],
            "mlm:hyperparameters": {
                **about.hyperparameters,
                "method": facts.method,
                "thresholds": dict(zip(facts.classes, facts.thresholds, strict=True)),
                "thresholds_rule": facts.rule,
                "thresholds_are": facts.about_thresholds,
            },
        },
        "links": [],
        "assets": {asset.name: asset.to_dict([band["name"] for band in bands]) for asset in assets},
    }


def slug(text: str) -> str:
    """The text with dashes for everything but letters and digits of ASCII."""
    return re.sub(r"[^0-9A-Za-z]+", "-", text).strip("-") or "model"


def _plain(text: str) -> str:
    """A name with letters, digits, blanks, dots and dashes alone, as the extension wants it."""
    plain = re.sub(r"[^0-9A-Za-z_. -]+", "-", text).strip("-_. ")
    return plain if re.fullmatch(r"[a-zA-Z].+[a-zA-Z0-9]", plain) else f"model {plain or 0}"


def _framework(framework: tuple[str, str] | None) -> dict[str, str]:
    if framework is None:
        return {}
    name, version = framework
    known = {"mlm:framework_version": version} if _VERSION.fullmatch(version) else {}
    return {"mlm:framework": name, **known}


def _bands(facts: ModelFacts, about: Description) -> list[dict[str, Any]]:
    if not facts.is_image:
        return []
    count = len(facts.bands)
    means, deviations = (
        list(values) * (count if len(values) == 1 else 1) for values in (about.mean, about.std)
    )
    missing = {} if facts.nodata is None else {"nodata": facts.nodata}
    return [
        {"name": name, **missing, "statistics": {"mean": mean, "stddev": deviation}}
        for name, mean, deviation in zip(facts.bands, means, deviations, strict=True)
    ]


def _input(facts: ModelFacts) -> dict[str, Any]:
    axes = ["batch", "bands", "height", "width"] if facts.is_image else ["batch", "embedding"]
    resized = {"resize_type": "interpolation-linear"} if facts.is_image else {}
    return {
        "name": "images" if facts.is_image else "embeddings",
        "description": (
            "Raw values, as they are in the files. The model normalises them itself; missing ones"
            " are NaN" + ("" if facts.nodata is None else f" or {facts.nodata:g}") + "."
        ),
        "bands": list(facts.bands) if facts.is_image else [],
        "input": {"shape": [-1, *facts.shape], "dim_order": axes, "data_type": "float32"},
        # Nothing is to be done to the values: who normalised them would do it twice. The mean and
        # deviation of each band stand beside its name.
        "value_scaling": [{"type": "scale", "value": 1}],
        **resized,
        "pre_processing_function": None,
    }


def _output(facts: ModelFacts) -> dict[str, Any]:
    names = [slug(name) for name in facts.classes]
    if len(set(names)) < len(names):
        names = [f"{name}-{number}" for number, name in enumerate(names)]
    return {
        "name": "probabilities",
        "description": "One probability per class; any number of classes may be present.",
        "tasks": _TASKS,
        "result": {
            "shape": [-1, len(facts.classes)],
            "dim_order": ["batch", "class"],
            "data_type": "float32",
        },
        "classification:classes": [
            {"value": number, "name": name, "description": title}
            for number, (name, title) in enumerate(zip(names, facts.classes, strict=True))
        ],
        "post_processing_function": None,
    }

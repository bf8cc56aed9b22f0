"""A trained network as two files: model.safetensors (numbers) and model.json (what they mean)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc._version import __version__
from adagc.atomic import replacing
from adagc.errors import AdagcError
from adagc.models.classifier import THRESHOLD, Classifier, build
from adagc.models.spec import ModelSpec
from adagc.models.tensors import read_safetensors

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
_FORMAT = 1
Place = str | os.PathLike[str] | MutableMapping[str, bytes]  # a folder, or files in memory by name


@dataclass(frozen=True)
class ModelDescription:
    """The content of model.json."""

    spec: ModelSpec
    mean: tuple[float, ...]  # of the normalisation, one per band
    std: tuple[float, ...]
    nodata: float | None  # number that stands for missing values in the images, besides NaN
    thresholds: tuple[float, ...]  # one probability per class, in the order of the classes
    version: str  # version of adagc that wrote the file
    sha256: str  # checksum of model.safetensors
    extra: Mapping[str, Any] = field(default_factory=dict)  # whatever `save_model` was given


def save_model(
    folder: Place,
    classifier: Classifier,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write both files; another process reading meanwhile gets the old pair or an error.

    Args:
        folder: Where to write, created if need be; a dictionary gets the two files by name.
        classifier: The network to save; not changed.
        extra: More values to store in model.json.
    """
    from safetensors.torch import save

    spec = classifier.spec
    # contiguous, because the file format has no channels_last layout.
    state = {k: v.detach().cpu().contiguous() for k, v in classifier.state_dict().items()}
    # The bands are stored with the weights too, for runs that start from this file alone. Not
    # `save_file`, whose files only their owner can read.
    numbers = save(state, metadata={"bands": "\n".join(spec.bands)})
    content = {
        "format": _FORMAT,
        "adagc": __version__,
        "spec": spec.to_dict(),
        "normalisation": {
            "mean": classifier.normalise.mean.tolist(),
            "std": classifier.normalise.std.tolist(),
            "nodata": classifier.normalise.nodata,
        },
        "thresholds": dict(zip(spec.classes, classifier.short_thresholds(), strict=True)),
        "sha256": hashlib.sha256(numbers).hexdigest(),
        "extra": dict(extra or {}),
    }
    text = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
    if isinstance(folder, MutableMapping):
        folder.update({WEIGHTS: numbers, DESCRIPTION: text})
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS, folder / DESCRIPTION) as (weights, description):
        weights.write(numbers)
        description.write(text)


def read_description(folder: Place) -> ModelDescription:
    """model.json alone, without building anything."""
    path = Path("memory" if isinstance(folder, MutableMapping) else folder) / DESCRIPTION
    try:
        text = folder[DESCRIPTION] if isinstance(folder, MutableMapping) else path.read_bytes()
        content = json.loads(text)
    except (FileNotFoundError, KeyError) as error:
        raise AdagcError(
            f"no model in {path.parent} ({DESCRIPTION} is missing): give the folder of a finished"
            " run"
        ) from error
    except (ValueError, OSError) as error:
        raise AdagcError(f"{path} cannot be read ({error}): copy it again") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise AdagcError(
            f"{path} is not a model description that adagc {__version__} knows: use the version "
            "of adagc that wrote it"
        )
    try:
        spec = ModelSpec.from_dict(content["spec"])
        # Older files have no thresholds, or null.
        thresholds = content.get("thresholds") or dict.fromkeys(spec.classes, THRESHOLD)
        nodata = content["normalisation"].get("nodata")
        return ModelDescription(
            spec=spec,
            mean=tuple(map(float, content["normalisation"]["mean"])),
            std=tuple(map(float, content["normalisation"]["std"])),
            nodata=None if nodata is None else float(nodata),
            thresholds=tuple(float(thresholds[name]) for name in spec.classes),
            version=str(content["adagc"]),
            sha256=str(content["sha256"]),
            extra=dict(content["extra"]),
        )
    except AdagcError as error:
        raise AdagcError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AdagcError(f"{path} is incomplete or damaged ({error!r}): copy it again") from error


def load_model(folder: Place) -> Classifier:
    """The network of a folder, in evaluation mode on the CPU; downloads nothing, runs no pickle.

    Example:
        >>> import torch
        >>> from adagc import RunConfig, load_model, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> run = train(config, "AN", "runs/first")
        >>> network = load_model("runs/first")  # raw values in; `run.model()` is the same
        >>> with torch.no_grad():
        ...     network.probabilities(torch.zeros(2, 14, 16, 16)).shape
        torch.Size([2, 19])

    Args:
        folder: The folder of a finished run, or the two files of a model by name.

    Raises:
        AdagcError: If there is no model, or its files are damaged or do not fit each other.
    """
    described = read_description(folder)
    if isinstance(folder, MutableMapping):
        from safetensors.torch import load

        return _filled(described, load(folder[WEIGHTS]), "memory")
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise AdagcError(
            f"no weights in {folder} ({WEIGHTS} is missing): copy it beside {DESCRIPTION}"
        )
    state, _ = read_safetensors(path)
    if _digest(path) != described.sha256:
        raise AdagcError(
            f"{path} is not the file that {DESCRIPTION} was written for: copy both files again"
        )
    return _filled(described, state, str(folder))


def _filled(described: ModelDescription, state: dict[str, Tensor], place: str) -> Classifier:
    classifier = build(
        described.spec,
        seed=0,
        mean=described.mean,
        std=described.std,
        nodata=described.nodata,
    )
    try:
        classifier.load_state_dict(state)
    except RuntimeError as error:
        raise AdagcError(
            f"the weights in {place} do not fit the network its {DESCRIPTION} describes: use the "
            f"version of timm they were made with (adagc {described.version} wrote them)"
        ) from error
    classifier.set_thresholds(described.thresholds)
    return classifier.eval()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

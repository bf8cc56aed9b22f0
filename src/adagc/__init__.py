"""From one label per remote-sensing image to a multi-label classifier.

The public names below are loaded when they are first used: importing adagc itself is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adagc._version import __version__

if TYPE_CHECKING:
    from adagc.completion import complete
    from adagc.datasets import collect, open_collection
    from adagc.datasets.collection import Collection
    from adagc.deploy import ExportedModel, export
    from adagc.embedding import embed
    from adagc.errors import AdagcError
    from adagc.estimator import SinglePositiveClassifier
    from adagc.labels import LabelTable, flip_rates, read_labels, write_labels
    from adagc.methods import Method, registry
    from adagc.metrics import score
    from adagc.models import load_model
    from adagc.prediction import predict
    from adagc.training.config import RunConfig
    from adagc.training.experiment import evaluate, train
    from adagc.training.runs import Run

_HOMES = {
    "AdagcError": "adagc.errors",
    "Collection": "adagc.datasets",
    "ExportedModel": "adagc.deploy",
    "LabelTable": "adagc.labels",
    "Method": "adagc.methods",
    "Run": "adagc.training.runs",
    "RunConfig": "adagc.training.config",
    "SinglePositiveClassifier": "adagc.estimator",
    "collect": "adagc.datasets",
    "complete": "adagc.completion",
    "embed": "adagc.embedding",
    "evaluate": "adagc.training.experiment",
    "export": "adagc.deploy",
    "flip_rates": "adagc.labels",
    "load_model": "adagc.models",
    "open_collection": "adagc.datasets",
    "predict": "adagc.prediction",
    "read_labels": "adagc.labels",
    "registry": "adagc.methods",
    "score": "adagc.metrics",
    "train": "adagc.training.experiment",
    "write_labels": "adagc.labels",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adagc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = [
    "AdagcError",
    "Collection",
    "ExportedModel",
    "LabelTable",
    "Method",
    "Run",
    "RunConfig",
    "SinglePositiveClassifier",
    "__version__",
    "collect",
    "complete",
    "embed",
    "evaluate",
    "export",
    "flip_rates",
    "load_model",
    "open_collection",
    "predict",
    "read_labels",
    "registry",
    "score",
    "train",
    "write_labels",
]

"""Models for other programs: written as ONNX and other formats, and run without torch.

Importing this package is quick: torch is loaded when a model is exported, onnxruntime when one is
opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adagc.deploy.facts import ModelFacts
from adagc.deploy.runtime import ExportedModel

if TYPE_CHECKING:
    from adagc.deploy.exporting import Exported, export

__all__ = ["Exported", "ExportedModel", "ModelFacts", "export"]


def __getattr__(name: str) -> Any:
    if name in ("Exported", "export"):
        return getattr(import_module("adagc.deploy.exporting"), name)
    raise AttributeError(f"module 'adagc.deploy' has no attribute {name!r}")

"""Imports timm; all other modules get it from here.

timm imports torchvision, and the compiled part of a torchvision wheel that was built for another
variant of torch does not load. torchvision handles that and goes on without its operators, except
for two that it registers without such handling, so that the import fails because of operators that
a classifier never calls. Declaring their schemas, without an implementation, makes it succeed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_SYMPTOM = "operator torchvision::nms does not exist"

# Declarations last as long as this object exists; None if they have not been needed.
_declared: torch.library.Library | None = None


def import_timm() -> ModuleType:
    """Import timm, after making sure that torchvision can be imported; repeated calls are fast."""
    _import_torchvision()
    return importlib.import_module("timm")


def _import_torchvision() -> None:
    """Import torchvision; declare the two operators only if the import fails without them."""
    global _declared
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if _SYMPTOM not in str(error) or _declared is not None:
            raise
        _declared = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            _declared.define(schema)  # type: ignore[no-untyped-call]
        # Python would reuse the half-imported submodules of the failed attempt.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision")

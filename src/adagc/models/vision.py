"""The one door to timm.

timm imports torchvision, and the compiled part of a torchvision wheel that was built for another
variant of torch does not load. torchvision expects that and goes on without its operators, except
for two it registers without a guard, so that the import dies over operators a classifier never
calls. Declaring their schemas, without an implementation, is enough for it to pass.
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

# A library's declarations live as long as the object does; None as long as nothing was wrong.
_declared: torch.library.Library | None = None


def import_timm() -> ModuleType:
    """Import timm, after making sure that torchvision can be imported; cheap when repeated."""
    _import_torchvision()
    return importlib.import_module("timm")


def _import_torchvision() -> None:
    """Import torchvision, declaring the two operators only if just their absence prevents it."""
    global _declared
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if _SYMPTOM not in str(error) or _declared is not None:
            raise
        _declared = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            _declared.define(schema)  # type: ignore[no-untyped-call]
        # Submodules of the failed import would be taken for complete by the second one.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision")

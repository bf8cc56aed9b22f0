"""A model for Deepness, the plug-in of QGIS that runs networks on maps.

Deepness has no scene classifiers. Its regressors give one map per output, so the model has an
output for each class: a square map that has the probability of the tile everywhere. The plug-in
divides all values by 255 before it hands them over, whatever their type, which the graph undoes.
"""

from __future__ import annotations

import json

import numpy as np
import torch
from torch import Tensor, nn

from adagc.deploy.checks import Floats, difference
from adagc.deploy.facts import ModelFacts
from adagc.deploy.graph import Deployed, to_onnx, trace
from adagc.deploy.runtime import INPUT, open_session
from adagc.errors import UsageError
from adagc.models import Classifier

DEEPNESS = "deepness.onnx"
_DIVISOR = 255.0
# Dividing and multiplying changes a 32-bit float by at most this share of it.
_ROUNDING = 2.5e-7


class _Maps(nn.Module):
    """Values divided by 255 in; for every class a map (N, 1, S, S) of its probability out."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.deployed = Deployed(classifier)
        self.classes = len(classifier.spec.classes)
        self.size = classifier.spec.shape[1]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        values = images * _DIVISOR
        # Whole numbers become exact again, because a missing value is known by its very number.
        whole = values.round()
        values = torch.where((values - whole).abs() <= _ROUNDING * whole.abs(), whole, values)
        found = self.deployed(values)[:, :, None, None, None]
        maps = found.expand(-1, -1, 1, self.size, self.size)
        return tuple(maps[:, c] for c in range(self.classes))


def check_suited(facts: ModelFacts) -> None:
    """Raise UsageError if the plug-in cannot have this model."""
    if not facts.is_image:
        raise UsageError("Deepness takes images, and this model takes embeddings: leave --for out")
    _, height, width = facts.shape
    if height != width:
        raise UsageError(
            f"Deepness takes square images, and this model {height} x {width} pixels: train with"
            " --size, or leave --for out"
        )


def to_deepness(classifier: Classifier, facts: ModelFacts, example: Tensor) -> bytes:
    """The content of an ONNX file for the plug-in."""
    outputs = [f"probability_{c}" for c in range(len(facts.classes))]
    program = trace(_Maps(classifier), example / _DIVISOR)
    return to_onnx(program, metadata(facts), outputs)


def metadata(facts: ModelFacts) -> dict[str, str]:
    """What the plug-in reads, every value as JSON, and what a person wants to know.

    The plug-in's documents say `tiles_size` and its code reads `tile_size`. It makes names of files
    of those of the classes.
    """
    size = facts.shape[1]
    values = {
        "model_type": "Regressor",
        "class_names": [{"0": name.replace("/", "-").replace("\\", "-")} for name in facts.classes],
        "tile_size": size,
        "tiles_size": size,
        "tiles_overlap": 0,
        "reg_output_scaling": 1.0,
    }
    ours = facts.to_metadata()
    told = ("bands", "thresholds", "thresholds_are", "method", "licence")
    return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()} | {
        key: ours[key] for key in told
    }


def deepness_difference(content: bytes, classifier: Classifier) -> float:
    """The largest difference of a probability, for values that the plug-in has divided."""
    session = open_session(content, threads=1, place=DEEPNESS)

    def theirs(values: Floats) -> Floats:
        maps = session.run(None, {INPUT: np.float32(values.astype(np.float64) / _DIVISOR)})
        found: Floats = np.concatenate(maps, axis=1)
        even = (found == found[:, :, :1, :1]).all(axis=(2, 3))
        return np.where(even, found[:, :, 0, 0], np.nan)

    return difference(classifier, theirs)

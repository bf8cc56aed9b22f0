"""Whether what was exported computes what our network computes."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from adagc.deploy.runtime import INPUT, OUTPUT, open_session
from adagc.errors import AdagcError
from adagc.models import Classifier

TOLERANCE = 1e-5  # largest difference of a probability to ours that is taken for rounding
_BATCHES = (1, 2, 5)
_MISSING = 0.01  # share of the values of a probe that are missing

Floats = NDArray[np.float32]


def probe(classifier: Classifier, size: int, *, seed: int) -> Floats:
    """Random inputs with the mean and spread that the network expects, some values missing."""
    random = np.random.default_rng(seed)
    normalise = classifier.normalise
    shape = (size, *classifier.spec.shape)
    per_band = (1, -1) + (1,) * (len(shape) - 2)
    mean, std = (one.cpu().numpy().reshape(per_band) for one in (normalise.mean, normalise.std))
    values: Floats = (random.normal(size=shape) * std + mean).astype(np.float32)
    values[random.random(shape) < _MISSING] = np.nan
    if normalise.nodata is not None:
        values[random.random(shape) < _MISSING] = normalise.nodata
    return values


def difference(classifier: Classifier, theirs: Callable[[Floats], Floats]) -> float:
    """The largest difference between probabilities of our network and those of an exported one.

    Args:
        classifier: Our network.
        theirs: Function from raw values to (N, C) probabilities.
    """
    worst = 0.0
    for size in _BATCHES:
        values = probe(classifier, size, seed=size)
        with torch.no_grad():
            ours = classifier.probabilities(torch.from_numpy(values)).numpy()
        worst = max(worst, float(np.abs(theirs(values) - ours).max()))
    return worst


def onnx_difference(content: bytes, classifier: Classifier, name: str) -> float:
    """That of an ONNX file; see `difference`."""
    session = open_session(content, threads=1, place=name)
    return difference(classifier, lambda values: session.run([OUTPUT], {INPUT: values})[0])


def pt2_difference(content: bytes, classifier: Classifier) -> float:
    """That of a program of torch.export; see `difference`."""
    module = torch.export.load(io.BytesIO(content)).module()
    return difference(classifier, lambda values: module(torch.from_numpy(values)).numpy())


def check(name: str, found: float) -> float:
    """The difference, if it is small enough; otherwise AdagcError, and NaN never is."""
    if found <= TOLERANCE:
        return found
    raise AdagcError(
        f"{name} differs from our network by {found:.2g}, more than {TOLERANCE:g}, and nothing was"
        " written: update torch and onnxruntime, or train with another backbone"
    )

"""What the networks of an epoch say of the validation images, scored on observed labels alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.metrics import score
from adagc.types import Scores


@dataclass(frozen=True)
class Validation:
    """Rows for the noisy validation and what was observed of them."""

    rows: NDArray[np.int64]
    observed: NDArray[np.int8]  # (V, C) -1/0/+1


@dataclass(frozen=True)
class Judgement:
    """Noisy validation of one epoch; nothing here was made with a clean label."""

    probabilities: Mapping[str, NDArray[np.float32]]  # reported network -> (V, C)
    noisy: Mapping[str, Scores]  # reported network -> scores on the observed labels
    watched: NDArray[np.float32]  # (V, C) of the network that the method watches
    scores: Scores  # of that network


def judge(
    networks: Mapping[str, nn.Module],
    watched: nn.Module,
    images: SceneDataset,
    validation: Validation,
    device: torch.device,
) -> Judgement:
    """Score every reported network, and the watched one if it is not among them."""
    seen = validation.observed > 0
    probabilities: dict[str, NDArray[np.float32]] = {}
    noisy: dict[str, Scores] = {}
    for name, network in networks.items():
        probabilities[name] = predict(
            network, images, validation.rows, device=device, together=True
        )
        noisy[name] = score(seen, probabilities[name], absent="skip")
    for name, network in networks.items():
        if network is watched:
            return Judgement(probabilities, noisy, probabilities[name], noisy[name])
    values = predict(watched, images, validation.rows, device=device, together=True)
    return Judgement(probabilities, noisy, values, score(seen, values, absent="skip"))

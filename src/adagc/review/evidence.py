"""Where in an image a network sees a class, as a map and as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adagc.errors import DataError, UsageError
from adagc.images.base import SceneDataset
from adagc.images.composites import composites_of
from adagc.images.pictures import eight_bits
from adagc.models import Classifier
from adagc.models.positions import AreaHead, PositionHead
from adagc.suggest import hint_or_list
from adagc.training.runs import Run

_HOT = np.array([255.0, 0.0, 170.0])  # colour of the strongest evidence
_STRENGTH = 0.75  # how much of the picture it covers
_VEIL = 0.6  # the same where people look through it for long


def evidence(
    run: Run | Classifier | Path | str, images: SceneDataset, row: int, label: str
) -> NDArray[np.float32]:
    """(h, w) how much each position of an image speaks for a class, from 0 to 1.

    Heads with class maps say it themselves: what a position shows, by its own probability or, where
    classes compete for positions, its share. For all others it is how much the value of the class
    owes to a position, Σ_d ∂z_c / ∂f_d(v) f_d(v) of the last feature map f. With a linear layer on
    pooled features that is class activation mapping. What speaks against the class counts as 0, and
    the strongest position as 1; a class that no position speaks for has a map of zeros.

    Args:
        run: A finished run, its folder, or a network.
        images: The images, as they were before any pooling.
        row: Which image.
        label: Name of the class.

    Raises:
        DataError: The images are embeddings without positions, or do not suit the network.
        UsageError: The network does not know the class.
    """
    found: NDArray[np.float32] = evidence_maps(run, images, row, (label,))[0]
    return found


def evidence_maps(
    run: Run | Classifier | Path | str,
    images: SceneDataset,
    row: int,
    labels: Sequence[str],
    *,
    least: bool = False,
) -> NDArray[np.float32]:
    """(classes, h, w) the evidence for several classes of one image, which share most of the work.

    Each is what `evidence` gives for that class alone. With `least` a class that no position speaks
    for has a map of those that speak less against it than the mean, up to a half: people who are
    asked about a class want to see where it would be.
    """
    network = _network(run)
    classes = network.spec.classes
    for label in labels:
        if label not in classes:
            raise UsageError(
                f"the model has no class {label!r}" + hint_or_list(label, classes, "classes")
            )
    if not images.is_image:
        raise DataError(
            "these are embeddings without positions, which cannot show where a class is: give the"
            " images, or stored feature maps"
        )
    inputs = images.gather(np.array([row], dtype=np.int64)).astype(np.float32)
    was_training = network.training
    network.eval()
    try:
        found = _maps(network, torch.from_numpy(inputs), [classes.index(each) for each in labels])
    finally:
        network.train(was_training)
    values = np.nan_to_num(found.detach().cpu().numpy().astype(np.float32))
    shown = _scaled(values)
    if least:
        against = ~shown.any(axis=(1, 2))
        left = values[against]
        relative = left - left.mean(axis=(1, 2), keepdims=True)
        # Positions that are all alike differ by rounding, of which nothing is to be seen.
        relative[np.abs(relative) < 1e-5 * np.abs(left).max(initial=0)] = 0
        shown[against] = 0.5 * _scaled(relative)
    return shown


def _scaled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Maps from 0 to 1, of which the largest value becomes 1 unless nothing is above 0."""
    shown: NDArray[np.float32] = values.clip(min=0)
    top = shown.max(axis=(1, 2), keepdims=True)
    np.divide(shown, top, out=shown, where=top > 0)
    return shown


def layer(found: NDArray[np.float32], *, longest: int = 256) -> bytes:
    """A PNG of a map alone, to be laid over any picture of the image: the stronger the less clear.

    Args:
        found: The map, from `evidence`.
        longest: Longest side in pixels to which a smaller map is enlarged, smoothly.
    """
    from PIL import Image

    height, width = found.shape
    scale = max(1.0, longest / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    scaled = Image.fromarray(found.astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    drawn = np.empty((size[1], size[0], 4), dtype=np.uint8)
    drawn[..., :3] = _HOT.astype(np.uint8)
    drawn[..., 3] = (255 * _VEIL * np.asarray(scaled).clip(0, 1)).round()
    buffer = io.BytesIO()
    Image.fromarray(drawn).save(buffer, "PNG")
    return buffer.getvalue()


def overlay(
    images: SceneDataset,
    row: int,
    found: NDArray[np.float32],
    *,
    channels: tuple[int, ...] | None = None,
    longest: int = 1024,
) -> bytes:
    """A PNG of the image with its evidence on it, the stronger the more of its colour.

    Args:
        images: The images; those to look at need not be those that the network sees.
        row: Which image.
        found: The map, from `evidence`.
        channels: Bands to show, of a composite; the natural ones by default.
        longest: Longest side in pixels.
    """
    from PIL import Image

    chosen = composites_of(images.bands)[0].channels if channels is None else channels
    shown, _ = eight_bits(images, row, chosen)
    picture = np.moveaxis(np.broadcast_to(shown, (3, *shown.shape[1:])), 0, -1)
    height, width = picture.shape[:2]
    scaled = Image.fromarray(found.astype(np.float32)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    weight = _STRENGTH * np.asarray(scaled).clip(0, 1)[..., None]
    drawn = Image.fromarray(((1 - weight) * picture + weight * _HOT).round().astype(np.uint8))
    if max(drawn.size) > longest:
        drawn.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _network(run: Run | Classifier | Path | str) -> Classifier:
    if isinstance(run, Classifier):
        return run
    return (run if isinstance(run, Run) else Run.open(run)).model()


def _maps(network: Classifier, values: Tensor, columns: Sequence[int]) -> Tensor:
    """(columns, h, w) evidence of one image (1, bands, H, W), not yet from 0 to 1."""
    device = next(network.parameters()).device
    values = values.to(device)
    if isinstance(network.head, PositionHead):
        with torch.no_grad():
            maps = network.class_maps(values).float()
        competing = isinstance(network.head, AreaHead)
        return (maps.softmax(dim=1) if competing else maps.sigmoid())[0, list(columns)]
    if not network.spec.is_image:  # trained on the means of stored maps
        if values.shape[1] != network.spec.shape[0]:
            raise DataError(
                f"the model takes {network.spec.shape[0]} numbers, and these images have"
                f" {values.shape[1]} bands: give the feature maps it was trained on"
            )
        inputs = values.nanmean(dim=(2, 3)).requires_grad_()
        middle, scale = network.normalise.mean, network.normalise.std
        normal = (values - middle[:, None, None]) / scale[:, None, None]
        with torch.enable_grad():
            slopes = _slopes(network(inputs)[0], inputs, columns)
        return torch.stack(
            [
                (normal * (slope * scale)[..., None, None]).nan_to_num().sum(dim=1)[0]
                for slope in slopes
            ]
        )
    with torch.no_grad():
        features = network.feature_map(values)
    features = features.detach().requires_grad_()
    head = network.head
    with torch.enable_grad():
        logits = head(features if head.on_map else network.pool(features))
        slopes = _slopes(logits[0], features, columns)
    return torch.stack([(slope * features.detach()).sum(dim=1)[0] for slope in slopes])


def _slopes(logits: Tensor, of: Tensor, columns: Sequence[int]) -> list[Tensor]:
    """How much each of these logits grows with every value that it was made from."""
    return [torch.autograd.grad(logits[c], of, retain_graph=True)[0] for c in columns]

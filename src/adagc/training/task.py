"""What a method may know of the data of a run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import torch

from adagc import ranks
from adagc.datasets.collection import Collection
from adagc.errors import UnsuitedError
from adagc.labels.selection import read_selection
from adagc.methods.base import Method
from adagc.models.backbones import positions
from adagc.suggest import require_path
from adagc.training.batches import batch_bounds
from adagc.training.config import RunConfig
from adagc.training.observe import Observed
from adagc.types import Task

log = logging.getLogger(__name__)


def make_task(
    config: RunConfig, method: Method, collection: Collection, observed: Observed
) -> Task:
    """What the method and the loop may know of the data.

    Clean labels are included only if the method declares in `needs` that it uses them. Class
    frequencies are added by `adagc.training.pilot`. Raises UnsuitedError if the method needs
    feature maps of pooled embeddings, or clean labels that only some training images have.
    """
    truth = text = None
    if "feature_map" in method.needs and not collection.images.is_image:
        raise UnsuitedError(
            f"{method.title} needs features with positions, which pooled embeddings do not have:"
            " give images or stored feature maps (N x D x h x w)"
        )
    if "text" in method.needs:
        text = _text(config.text, collection.classes)
    known = collection.has_truth(observed.train)
    if "truth" in method.needs and known.any() and not known.all():
        raise UnsuitedError(
            f"{method.title} needs clean labels of all training images, but {(~known).sum()} of"
            f" {len(known)} have none: add them to the file of --truth, or use another method"
        )
    if collection.truth is not None and known.any():
        clean = torch.from_numpy(collection.truth[observed.train].astype(np.float32))
        truth = clean if "truth" in method.needs else None
    if config.selection is not None and not method.selective:
        log.warning(
            "%s does not model how the annotator chooses: --selection has no effect on it",
            method.title,
        )
    return Task(
        classes=collection.classes,
        observed=torch.from_numpy(observed.values[observed.train]),
        epochs=config.epochs,
        steps_per_epoch=len(batch_bounds(len(observed.train), config.batch_size, ranks.world())),
        seed=config.seed,
        positions=positions(config.backbone, collection.images.shape),
        truth=truth,
        selection=_selection(config.selection, collection.classes),
        text=text,
    )


def _selection(path: str | None, classes: tuple[str, ...]) -> torch.Tensor | None:
    """(C,) selection rates in this file."""
    if path is None:
        return None
    rates = read_selection(Path(path)).of(classes, f"--selection {path}")
    return torch.tensor(rates, dtype=torch.float32)


def _text(path: str | None, classes: tuple[str, ...]) -> torch.Tensor | None:
    """Embeddings (C, D) of the class names: from this file, or else those built into adagc.

    None if no file is given and the classes are not among the built-in ones.
    """
    from adagc.text import read_text, shipped

    require_path("text", path)
    values = read_text(path, classes) if path is not None else shipped(classes)
    return None if values is None else torch.from_numpy(np.asarray(values, dtype=np.float32))

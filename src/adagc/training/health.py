"""Whether training still makes sense after an epoch: weights, loss and predictions.

The loss of every step is checked where it is computed; see `adagc.training.trainer`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adagc.errors import DataError, TrainingError
from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.types import Progress

# The loss of an untrained network is about 1 per label; one that is this large has run away.
_HUGE = 1e4
_REMEDY = "start a new run with a lower --learning-rate, or with --clip 1"

log = logging.getLogger(__name__)


def check_weights(networks: Mapping[str, nn.Module], progress: Progress) -> None:
    """Raise TrainingError if a network has weights or statistics that are not finite."""
    for name, network in networks.items():
        finite = [
            torch.isfinite(value).all()
            for value in network.state_dict().values()
            if value.is_floating_point()
        ]
        if finite and not bool(torch.stack(finite).all()):
            raise TrainingError(
                f"the weights of {name} are not finite after epoch {progress.epoch}, step"
                f" {progress.steps_per_epoch}: {_REMEDY}"
            )


@contextmanager
def checked_predictions(
    network: nn.Module, images: SceneDataset, rows: NDArray[np.int64], progress: Progress
) -> Iterator[None]:
    """Raise TrainingError for predictions in the block that cannot be scored: are they finite?

    Args:
        network: The network whose predictions are scored.
        images: All images of the data set.
        rows: The images that are predicted.
        progress: The epoch, for the message.
    """
    try:
        yield
    except DataError as error:
        device = next(network.parameters()).device
        values = predict(network, images, rows, device=device, together=True)
        bad = rows[~np.isfinite(values).all(axis=1)]
        after = f"after epoch {progress.epoch}, step {progress.steps_per_epoch}"
        if 0 < len(bad) < len(rows):
            names = ", ".join(images.names[row] for row in bad[:5].tolist())
            raise TrainingError(
                f"{len(bad)} validation images have predictions that are not finite {after}"
                f" ({names}): check their values with adagc inspect"
            ) from error
        if len(bad):
            raise TrainingError(f"no prediction is finite {after}: {_REMEDY}") from error
        raise


class Watch:
    """Warns once if training has run away although all numbers are finite."""

    def __init__(self) -> None:
        self._warned = False

    def look(
        self, loss: float, predictions: Mapping[str, NDArray[np.float32]], progress: Progress
    ) -> None:
        """Look at the mean loss of an epoch, and at the validation predictions by network."""
        if self._warned:
            return
        reason = ""
        if abs(loss) > _HUGE:
            reason = f"the loss is {loss:.2g}"
        for name, values in predictions.items():
            if len(values) > 1 and not np.ptp(values, axis=0).any():
                reason = f"{name} predicts the same for all {len(values)} validation images"
        if reason:
            self._warned = True
            log.warning(
                "%s after epoch %d: if this is not what you expect, %s",
                reason,
                progress.epoch,
                _REMEDY,
            )

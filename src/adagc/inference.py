"""Predictions of a network for the images of a data set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adagc import ranks
from adagc.images.base import SceneDataset
from adagc.progress import tracked


def probabilities(network: nn.Module, values: Tensor) -> Tensor:
    """(B, C) predicted probabilities of raw inputs.

    They come from the network's `probabilities`, or else from a sigmoid of its logits.
    """
    function: Callable[[Tensor], Tensor] | None = getattr(network, "probabilities", None)
    if function is not None:
        return function(values)
    logits: Tensor = network(values)
    return logits.float().sigmoid()


@torch.no_grad()
def predict(
    network: nn.Module,
    images: SceneDataset,
    rows: NDArray[np.int64],
    *,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    together: bool = False,
) -> NDArray[np.float32]:
    """(len(rows), C) probabilities of the images with these numbers, in evaluation mode, in order.

    By default a batch has 64 images or 256 embeddings; in smaller batches of embeddings the
    overhead of calls would dominate. With `together` all ranks must call this; each predicts a
    part of the rows, and all get the whole result.
    """
    if together and 1 < ranks.world() <= len(rows):
        mine = predict(network, images, ranks.own(rows), batch_size=batch_size, device=device)
        shares = torch.from_numpy(mine).to(device)
        whole: NDArray[np.float32] = ranks.gather(shares, len(rows)).cpu().numpy()
        return whole
    if batch_size is None:
        batch_size = 64 if len(images.shape) > 1 else 256
    was_training = network.training
    network.eval()
    parts = []
    for start in tracked(range(0, len(rows), batch_size), "predicting"):
        values = torch.from_numpy(images.gather(rows[start : start + batch_size]))
        parts.append(probabilities(network, values.to(device).to(torch.float32)).cpu().numpy())
    network.train(was_training)
    return np.concatenate(parts)

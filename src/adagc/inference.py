"""Predictions of a network for any images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adagc import ranks
from adagc.images.base import SceneDataset


def probabilities(network: nn.Module, values: Tensor) -> Tensor:
    """(B, C) what a network deploys: its own `probabilities`, or a sigmoid of what it returns."""
    own: Callable[[Tensor], Tensor] | None = getattr(network, "probabilities", None)
    if own is not None:
        return own(values)
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
    """(len(rows), C) probabilities in evaluation mode, every row, in order.

    Batches are of 64 images or of 256 embeddings, which are so small that calls would cost more.
    With `together` all ranks must call this, and each predicts its share of the rows.
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
    for start in range(0, len(rows), batch_size):
        values = torch.from_numpy(images.gather(rows[start : start + batch_size]))
        parts.append(probabilities(network, values.to(device).to(torch.float32)).cpu().numpy())
    network.train(was_training)
    return np.concatenate(parts)

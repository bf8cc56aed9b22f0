"""Probabilities of a network for named rows, and what an oracle may read off them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adagc.data.base import SceneDataset
from adagc.metrics import average_precision, score


@torch.no_grad()
def predict(
    network: nn.Module,
    images: SceneDataset,
    rows: NDArray[np.int64],
    *,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> NDArray[np.float32]:
    """(len(rows), C) probabilities in evaluation mode, every row, in order."""
    was_training = network.training
    network.eval()
    parts = []
    for start in range(0, len(rows), batch_size):
        values = torch.from_numpy(images.gather(rows[start : start + batch_size]))
        logits = network(values.to(device).to(torch.float32))
        parts.append(logits.float().sigmoid().cpu().numpy())
    network.train(was_training)
    return np.concatenate(parts)


class Oracle:
    """Reads the clean labels beside training and writes what it sees into the history.

    The loop hands it predictions and takes numbers for the record; nothing flows back.

    Args:
        val: (V, C) clean labels of the validation rows, and (V,) which of them are known.
        train: (N, C) clean labels of the training rows, and (N,) which of them are known.
        train_observed: (N, C) what was observed of them: pseudo-labels are judged where nobody
            looked.
    """

    def __init__(
        self,
        val: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        train: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        train_observed: NDArray[np.int8],
    ) -> None:
        (val_truth, self._val_known), (train_truth, self._train_known) = val, train
        self._val = val_truth[self._val_known]
        self._train = train_truth[self._train_known]
        self._unknown = train_observed[self._train_known] == 0

    def __call__(
        self,
        predictions: Mapping[str, NDArray[np.float32]],
        estimates: NDArray[np.float32] | None,
    ) -> dict[str, Any]:
        """Clean validation scores per network, and the quality of the pseudo-labels."""
        record: dict[str, Any] = {}
        if self._val.any():
            record["validation"] = {
                name: score(self._val, values[self._val_known], absent="skip").summary()
                for name, values in predictions.items()
            }
        if self._train.any() and estimates is not None:
            record["pseudo_labels"] = self._judge(estimates[self._train_known])
        return record

    def _judge(self, estimates: NDArray[np.float32]) -> dict[str, float]:
        """How well pseudo-labels recover the missing positives, at threshold 0.5 and by rank."""
        said = (estimates >= 0.5) & self._unknown
        missing = self._train & self._unknown
        right = int((said & missing).sum())
        precision = right / max(int(said.sum()), 1)
        recall = right / max(int(missing.sum()), 1)
        ap = average_precision(self._train, estimates)
        return {
            "mean_average_precision": float(np.nanmean(ap)),
            "precision": precision,
            "recall": recall,
            "f1": 2 * precision * recall / max(precision + recall, 1e-12),
            "added_per_image": float(said.sum(axis=1).mean()),
        }

"""All that a checkpoint holds, the snapshot a method may ask for, and the best weights so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from adagc import ranks
from adagc.atomic import write_bytes
from adagc.errors import AdagcError
from adagc.methods.base import Method
from adagc.methods.state import AveragedNetwork
from adagc.training import checkpoint
from adagc.types import Scores


class Snapshots:
    """Network, method, optimiser and averaged copy, saved and restored together."""

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        optimiser: torch.optim.Optimizer,
        averaged: AveragedNetwork | None,
        *,
        writes: bool = True,
    ) -> None:
        self.network = network
        self.method = method
        self.optimiser = optimiser
        self.averaged = averaged
        self.writes = writes  # whether this is the rank that writes for all
        self.best_epoch: dict[str, int] = {}
        self.best_score: dict[str, float] = {}
        self.seconds = 0.0

    def _core(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "method": self.method.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "averaged": None if self.averaged is None else self.averaged.state_dict(),
        }

    def _load_core(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.method.load_state_dict(state["method"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.averaged is not None and state["averaged"] is not None:
            self.averaged.load_state_dict(state["averaged"])

    def save(self, folder: Path, epoch: int) -> None:
        """Write the end of an epoch."""
        if not self.writes:
            return
        checkpoint.save(
            folder / "last.ckpt",
            {
                **self._core(),
                "epoch": epoch,
                "best_epoch": self.best_epoch,
                "best_score": self.best_score,
                "seconds": self.seconds,
            },
        )

    def load(self, folder: Path) -> int:
        """Take up the last finished epoch and return its number; 0 if there is none yet."""
        path = folder / "last.ckpt"
        if not path.exists():
            return 0
        state = checkpoint.load(path)
        try:
            self._load_core(state)
            self.best_epoch = dict(state["best_epoch"])
            self.best_score = dict(state["best_score"])
            self.seconds = state["seconds"]
            return int(state["epoch"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise AdagcError(
                f"{path} does not fit this run: it was written by another version of adagc or for"
                " another network; choose another --out"
            ) from error

    def keep(self, folder: Path) -> None:
        """Snapshot for a later `restore`; on disk, so that it survives an interruption."""
        if self.writes:
            checkpoint.save(folder / "keep.ckpt", self._core())
        ranks.wait()

    def restore(self, folder: Path) -> None:
        """Go back to the snapshot."""
        self._load_core(checkpoint.load(folder / "keep.ckpt"))

    def note_best(
        self,
        folder: Path,
        epoch: int,
        networks: Mapping[str, nn.Module],
        noisy: Mapping[str, Scores],
    ) -> None:
        """Keep the weights of each network at its own best noisy validation epoch."""
        for name, scores in noisy.items():
            value = scores.mean_average_precision
            if value > self.best_score.get(name, -math.inf):
                self.best_score[name], self.best_epoch[name] = value, epoch
                if self.writes:
                    save_weights(folder, name, "best", networks[name])


def weights_path(folder: Path, name: str, which: str) -> Path:
    """Where the weights of this network at this epoch ("last" or "best") are."""
    return folder / "weights" / f"{name}-{which}.safetensors"


def save_weights(folder: Path, name: str, which: str, network: nn.Module) -> None:
    """Write one network's weights whole or not at all."""
    path = weights_path(folder, name, which)
    path.parent.mkdir(exist_ok=True)
    tensors = {key: value.cpu().contiguous() for key, value in network.state_dict().items()}
    write_bytes(path, save(tensors))  # files of `save_file` can be read by their owner only

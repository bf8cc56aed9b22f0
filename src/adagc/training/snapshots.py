"""Saving training: checkpoints to resume from, snapshots to go back to, and best weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from adagc import ranks
from adagc.errors import AdagcError
from adagc.methods.base import Method
from adagc.methods.state import AveragedNetwork
from adagc.models.tensors import read_safetensors
from adagc.training import checkpoint
from adagc.training.folders import Folder
from adagc.training.stability import Stability

_WEIGHTS, _SUFFIX = "weights", ".safetensors"


class Snapshots:
    """Saves and restores network, method, optimiser and averaged copy together.

    Args:
        network: The network in training.
        method: Its method, whose state is saved too.
        optimiser: The optimiser of the network.
        averaged: The averaged copy of the network, if there is one.
        writes: Whether this rank writes the files of the run.
    """

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
        self.writes = writes
        self.best_epoch: dict[str, int] = {}
        self.best_score: dict[str, float] = {}  # by network: the criterion that chooses the epoch
        self.stability = Stability()  # of what the method takes for labels
        self.seconds = 0.0  # time of all epochs so far
        self.cpu_seconds: float | None = 0.0  # CPU time of the same; None if not known of all

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

    def save(self, folder: Folder, epoch: int) -> None:
        """Write last.ckpt after an epoch, to resume from; a run in memory writes none."""
        if not self.writes or folder.place is None:
            return
        checkpoint.save(
            folder,
            "last.ckpt",
            {
                **self._core(),
                "epoch": epoch,
                "best_epoch": self.best_epoch,
                "best_score": self.best_score,
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "stability": self.stability.state(),
            },
        )

    def load(self, folder: Folder) -> int:
        """Load last.ckpt and return the number of its epoch; 0 if there is no checkpoint yet."""
        if not folder.exists("last.ckpt"):
            return 0
        state = checkpoint.load(folder.opened("last.ckpt"))
        try:
            self._load_core(state)
            self.best_epoch = dict(state["best_epoch"])
            self.best_score = dict(state["best_score"])
            self.seconds = state["seconds"]
            self.cpu_seconds = state.get("cpu_seconds")  # older versions did not measure it
            self.stability.load(state.get("stability", {}))  # older versions did not count
            return int(state["epoch"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise AdagcError(
                f"{folder}/last.ckpt does not fit this run: it was written by another version of"
                " adagc or for another network; choose another --out"
            ) from error

    def add_time(self, seconds: float, cpu_seconds: float | None) -> None:
        """Add the time of an epoch to that of all epochs so far."""
        self.seconds += seconds
        if self.cpu_seconds is None or cpu_seconds is None:
            self.cpu_seconds = None
        else:
            self.cpu_seconds += cpu_seconds

    def keep(self, folder: Folder) -> None:
        """Write the snapshot keep.ckpt for a later `restore`, which a resumed run may make, too."""
        if self.writes or folder.place is None:  # in memory every rank keeps its own
            checkpoint.save(folder, "keep.ckpt", self._core())
        ranks.wait()

    def restore(self, folder: Folder) -> None:
        """Load the last snapshot that `keep` wrote."""
        self._load_core(checkpoint.load(folder.opened("keep.ckpt")))

    def note_best(
        self,
        folder: Folder,
        epoch: int,
        networks: Mapping[str, nn.Module],
        values: Mapping[str, float],
    ) -> list[str]:
        """Save the weights of every network whose value is its largest so far; their names.

        Args:
            folder: The files of the run.
            epoch: The epoch that has ended.
            networks: The reported networks by name.
            values: Their values of the criterion that chooses the best epoch.
        """
        better = [
            name for name, value in values.items() if value > self.best_score.get(name, -math.inf)
        ]
        for name in better:
            self.best_score[name], self.best_epoch[name] = values[name], epoch
            if self.writes:
                save_weights(folder, name, "best", networks[name])
        return better


def save_weights(folder: Folder, name: str, which: str, network: nn.Module) -> None:
    """Write the weights of a network under its name and `which`, "last" or "best"."""
    tensors = {key: value.cpu().contiguous() for key, value in network.state_dict().items()}
    # Not with `save_file`, whose files only their owner can read.
    folder.write(f"{_WEIGHTS}/{name}-{which}{_SUFFIX}", save(tensors))


def saved_weights(folder: Folder) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
    """Name of the network, "last" or "best", and weights, for each saved file, sorted by name."""
    for file in folder.names(_WEIGHTS):
        name, _, which = file.removeprefix(f"{_WEIGHTS}/").removesuffix(_SUFFIX).rpartition("-")
        if not file.endswith(_SUFFIX):
            continue  # a temporary file of a process that was killed while writing
        if folder.place is None:
            yield name, which, load(folder.read(file))
        else:
            yield name, which, read_safetensors(folder.path(file))[0]

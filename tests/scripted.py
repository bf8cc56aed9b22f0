"""A short run in which everything happens, and comparing what two such runs end with."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file

from adagc.methods.adagc import AdaGC
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from conftest import make_collection

EPOCHS = 7  # warm-up 1-5, best epoch 3, calibration 6-7
STEPS = 3


class Scripted(AdaGC):
    """AdaGC whose teacher scores are given: KEEP after 2 and 3, RESTORE after 5."""

    values = (0.1, 0.2, 0.5, 0.4, 0.3, 0.2, 0.1)

    def end_epoch(self, scores, progress):
        given = copy.copy(scores)
        object.__setattr__(given, "mean_average_precision", self.values[progress.epoch - 1])
        return super().end_epoch(given, progress)


def train_scripted(folder: Path | str, *, resume: bool = False) -> Run:
    config = RunConfig(
        scheme="random", epochs=EPOCHS, batch_size=8, learning_rate=0.02, hidden=8, dropout=0.3,
        schedule="cosine", average=0.9, accelerator="cpu",
    )  # fmt: skip
    method = Scripted(patience=2, minimum_warm_up=1, force_trigger=None, weight=4.0)
    return train(config, method, folder, resume=resume, collection=make_collection())


def identical(one, other, where: str = "") -> None:
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            identical(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            identical(a, b, f"{where}/{i}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def told(run: Run) -> list[dict]:
    """The history without the clock."""
    lines = [line.to_dict() for line in run.history]
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


def content(folder: Path) -> dict:
    """Everything a run ends with, but for the time it took."""
    run = Run.open(folder)
    state = torch.load(folder / "last.ckpt", weights_only=True)
    for clock in ("seconds", "cpu_seconds"):
        assert state.pop(clock) > 0
    weights = sorted((folder / "weights").glob("*.safetensors"))
    return {
        "checkpoint": state,
        "kept": torch.load(folder / "keep.ckpt", weights_only=True),
        "weights": {path.name: load_file(path) for path in weights},
        "model": load_file(folder / "model.safetensors"),
        "history": told(run),
        "scores": run.read_json("scores.json"),
    }

"""Data, networks, tasks and batches that are small enough to be trained in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adagc.datasets.collection import Collection
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable, simulate_random, write_labels
from adagc.models import Classifier, ModelSpec, build
from adagc.types import Batch, Progress, Task

CLASSES = ("bare", "forest", "urban", "water")
SPLITS = {"train": (0, 24), "val": (24, 40), "test": (40, 64)}


def make_truth(count: int = 64, seed: int = 0) -> NDArray[np.bool_]:
    """(N, 4) random clean labels: at least one class per image, every class in every split."""
    truth = np.random.default_rng(seed).random((count, len(CLASSES))) < 0.45
    truth[np.arange(count), np.arange(count) % len(CLASSES)] = True
    return truth


def make_collection(kind: str = "embeddings", *, count: int = 64, seed: int = 0) -> Collection:
    """A data set from which the classes can be learnt; `kind` is "embeddings" or "images"."""
    rng = np.random.default_rng(seed)
    truth = make_truth(count, seed)
    values: NDArray[Any]
    if kind == "embeddings":
        values = truth @ rng.normal(size=(4, 6)) + 0.3 * rng.normal(size=(count, 6))
        values = values.astype(np.float32)
        bands = None
    else:
        patterns = rng.normal(size=(4, 3, 6, 6))
        values = np.tensordot(truth, patterns, 1) + 0.3 * rng.normal(size=(count, 3, 6, 6))
        values = (values * 20 + 120).clip(0, 255).astype(np.uint8)
        bands = ("red", "green", "blue")
    return Collection(
        images=ArrayScenes(values, bands=bands),
        classes=CLASSES,
        splits={name: np.arange(*bounds) for name, bounds in SPLITS.items()},
        truth=truth,
    )


def make_labels(collection: Collection, path: Path, *, seed: int = 0) -> Path:
    """Write a file with one random positive for every training and validation image."""
    assert collection.truth is not None
    rows = np.concatenate([collection.splits["train"], collection.splits["val"]])
    values = simulate_random(collection.truth[rows], seed)
    names = tuple(collection.images.names[row] for row in rows)
    write_labels(LabelTable(names, collection.classes, values, kind="single"), path)
    return path


def make_text(path: Path) -> Path:
    """Write a file with random embeddings of the class names."""
    rows = torch.randn(len(CLASSES), 5, generator=torch.Generator().manual_seed(3)).tolist()
    lines = [",".join([name, *map(str, row)]) for name, row in zip(CLASSES, rows, strict=True)]
    path.write_text("\n".join(["class,v1,v2,v3,v4,v5", *lines]) + "\n", encoding="utf-8")
    return path


def make_classifier(shape: tuple[int, ...] = (6,), *, seed: int = 0, **options: Any) -> Classifier:
    """A network of eight hidden units for inputs of this shape; `options` go to `ModelSpec`."""
    bands = tuple(f"band {i}" for i in range(shape[0]))
    options = {"backbone": "mlp", "hidden": 8, **options}
    return build(ModelSpec(shape=shape, classes=CLASSES, bands=bands, **options), seed=seed)


class TinyCNN(nn.Sequential):
    """A small convolutional network with batch normalisation, for images of three bands."""

    def __init__(self, classes: int = 4, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            super().__init__(
                nn.Conv2d(3, 5, 3, padding=1),
                nn.BatchNorm2d(5),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(5, classes),
            )


class FixedHead:
    """The head of `FixedLogits`, whose embeddings repeat one logit each."""

    def encode(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """A code with the embedding as μ, and with log σ = 0.1."""
        return embeddings.float(), torch.full_like(embeddings.float(), 0.1)

    def logits(self, embeddings: Tensor) -> Tensor:
        """(B, C) the logit that each embedding repeats."""
        return embeddings.mean(dim=-1)


class FixedLogits(nn.Module):
    """A network whose logits are its only parameter, whatever the images.

    Losses can then be computed by hand. It also gives class maps, label-wise embeddings and early
    features to methods that need them.
    """

    def __init__(self, logits: Tensor, *, half: bool = False, width: int = 256) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())
        self.half_precision = half
        self.width = width
        self.head = FixedHead()

    def forward(self, images: Tensor) -> Tensor:
        """(B, C) the first rows of the parameter, one per image."""
        logits = self.logits[: len(images)]
        return logits.half() if self.half_precision else logits

    def probabilities(self, images: Tensor) -> Tensor:
        """(B, C) the sigmoid of the logits."""
        logits: Tensor = self(images)
        return logits.float().sigmoid()

    def class_maps(self, images: Tensor) -> Tensor:
        """(B, C, 2, 2) maps that have the logits of an image at every position."""
        logits: Tensor = self(images)
        return logits[:, :, None, None].expand(-1, -1, 2, 2)

    def label_embeddings(self, images: Tensor) -> Tensor:
        """(B, C, width) embeddings that repeat the logit of their class."""
        logits: Tensor = self(images)
        return logits.unsqueeze(-1).expand(-1, -1, self.width)

    def logits_and_early_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, and the logits again in place of early features."""
        return self(images), self(images)


def make_task(
    observed: Tensor,
    *,
    oracle: frozenset[str] = frozenset(),
    epochs: int = 4,
    positions: int = 0,
    fresh: Callable[[int], nn.Module] | None = None,
) -> Task:
    """A task that has only what `oracle` names; its clean labels are the observed positives."""
    truth = (observed > 0).float()
    text = torch.randn(observed.shape[1], 8, generator=torch.Generator().manual_seed(1))
    return Task(
        classes=tuple(f"class {i}" for i in range(observed.shape[1])),
        observed=observed,
        epochs=epochs,
        steps_per_epoch=2,
        seed=0,
        positions=positions,
        truth=truth if "truth" in oracle else None,
        priors=truth.mean(0) if "priors" in oracle else None,
        text=text if "text" in oracle else None,
        fresh=fresh,
    )


def make_batch(images: Tensor, task: Task, *, seed: int = 0) -> Batch:
    """A batch of the first `len(images)` rows of the task."""
    rows = len(images)
    return Batch(
        images=images,
        observed=task.observed[:rows],
        index=torch.arange(rows),
        generator=torch.Generator().manual_seed(seed),
        truth=None if task.truth is None else task.truth[:rows],
    )


def make_progress(epoch: int = 1, epochs: int = 4) -> Progress:
    """The progress at the first of two steps of this epoch."""
    return Progress(epoch, epochs, (epoch - 1) * 2, 2)

"""Data, networks, tasks and batches that are small enough to be trained in a moment."""

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
    """(N, 4) at least one class per image, every class in every split."""
    truth = np.random.default_rng(seed).random((count, len(CLASSES))) < 0.45
    truth[np.arange(count), np.arange(count) % len(CLASSES)] = True
    return truth


def make_collection(kind: str = "embeddings", *, count: int = 64, seed: int = 0) -> Collection:
    """Values that tell the classes apart, with noise; `kind` is "embeddings" or "images"."""
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
    """One random positive for every training and validation image, as a file."""
    assert collection.truth is not None
    rows = np.concatenate([collection.splits["train"], collection.splits["val"]])
    values = simulate_random(collection.truth[rows], seed)
    names = tuple(collection.images.names[row] for row in rows)
    write_labels(LabelTable(names, collection.classes, values, kind="single"), path)
    return path


def make_text(path: Path) -> Path:
    """Embeddings of the class names, as a file."""
    rows = torch.randn(len(CLASSES), 5, generator=torch.Generator().manual_seed(3)).tolist()
    lines = [",".join([name, *map(str, row)]) for name, row in zip(CLASSES, rows, strict=True)]
    path.write_text("\n".join(["class,v1,v2,v3,v4,v5", *lines]) + "\n", encoding="utf-8")
    return path


def make_classifier(shape: tuple[int, ...] = (6,), *, seed: int = 0, **options: Any) -> Classifier:
    """A network of eight hidden units for inputs of this shape; `options` are of `ModelSpec`."""
    bands = tuple(f"band {i}" for i in range(shape[0]))
    options = {"backbone": "mlp", "hidden": 8, **options}
    return build(ModelSpec(shape=shape, classes=CLASSES, bands=bands, **options), seed=seed)


class TinyCNN(nn.Sequential):
    """Three bands in, one logit per class out, with batch normalisation on the way."""

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
    """Of `FixedLogits`: every embedding is its logit, repeated."""

    def encode(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """μ is the embedding, log σ is 0.1."""
        return embeddings.float(), torch.full_like(embeddings.float(), 0.1)

    def logits(self, embeddings: Tensor) -> Tensor:
        """(B, C) the number that an embedding repeats."""
        return embeddings.mean(dim=-1)


class FixedLogits(nn.Module):
    """Answers with its own parameter, whatever the image: losses become testable by hand.

    Also where a method asks for label-wise embeddings or for early features.
    """

    def __init__(self, logits: Tensor, *, half: bool = False, width: int = 256) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())
        self.half_precision = half
        self.width = width
        self.head = FixedHead()

    def forward(self, images: Tensor) -> Tensor:
        """The first rows of the parameter."""
        logits = self.logits[: len(images)]
        return logits.half() if self.half_precision else logits

    def probabilities(self, images: Tensor) -> Tensor:
        """A sigmoid of them."""
        logits: Tensor = self(images)
        return logits.float().sigmoid()

    def label_embeddings(self, images: Tensor) -> Tensor:
        """(B, C, width) every logit repeated."""
        logits: Tensor = self(images)
        return logits.unsqueeze(-1).expand(-1, -1, self.width)

    def logits_and_early_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The logits twice."""
        return self(images), self(images)


def make_task(
    observed: Tensor,
    *,
    oracle: frozenset[str] = frozenset(),
    epochs: int = 4,
    fresh: Callable[[int], nn.Module] | None = None,
) -> Task:
    """A task that knows only what `oracle` names; observed positives are the truth."""
    truth = (observed > 0).float()
    text = torch.randn(observed.shape[1], 8, generator=torch.Generator().manual_seed(1))
    return Task(
        classes=tuple(f"class {i}" for i in range(observed.shape[1])),
        observed=observed,
        epochs=epochs,
        steps_per_epoch=2,
        seed=0,
        truth=truth if "truth" in oracle else None,
        priors=truth.mean(0) if "priors" in oracle else None,
        text=text if "text" in oracle else None,
        fresh=fresh,
    )


def make_batch(images: Tensor, task: Task, *, seed: int = 0) -> Batch:
    """All rows of the task in one batch."""
    rows = len(images)
    return Batch(
        images=images,
        observed=task.observed[:rows],
        index=torch.arange(rows),
        generator=torch.Generator().manual_seed(seed),
        truth=None if task.truth is None else task.truth[:rows],
    )


def make_progress(epoch: int = 1, epochs: int = 4) -> Progress:
    """The first of two steps of an epoch."""
    return Progress(epoch, epochs, (epoch - 1) * 2, 2)

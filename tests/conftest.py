"""Tiny collections and networks that several test folders share."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adagc.bench.scenarios import Scenario
from adagc.datasets.collection import Collection
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable, simulate_random, write_labels
from adagc.models import Classifier, ModelSpec, build
from adagc.types import Batch, Progress, Task
from tiny import write_scenario

CLASSES = ("bare", "forest", "urban", "water")
SPLITS = {"train": (0, 24), "val": (24, 40), "test": (40, 64)}

# One server that has imported everything heavy; a process is a fork of it, quick to start and free
# of the threads of the test process, and can be killed for good.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(
    ["adagc.training.experiment", "adagc.methods", "torch.utils.tensorboard", "conftest"]
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def make_truth(count: int = 64, seed: int = 0) -> np.ndarray:
    """(N, 4) at least one class per image, every class in every split."""
    truth = np.random.default_rng(seed).random((count, len(CLASSES))) < 0.45
    truth[np.arange(count), np.arange(count) % len(CLASSES)] = True
    return truth


def make_collection(kind: str = "embeddings", *, count: int = 64, seed: int = 0) -> Collection:
    """Values that tell the classes apart, with noise; `kind` is "embeddings" or "images"."""
    rng = np.random.default_rng(seed)
    truth = make_truth(count, seed)
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
    path.write_text("\n".join(["class,v1,v2,v3,v4,v5", *lines]) + "\n")
    return path


@pytest.fixture
def embeddings() -> Collection:
    return make_collection("embeddings")


@pytest.fixture
def pictures() -> Collection:
    return make_collection("images")


@pytest.fixture
def label_file(tmp_path: Path, embeddings: Collection) -> Path:
    """Single positives for `embeddings` (and for `pictures`, which has the same truth)."""
    return make_labels(embeddings, tmp_path / "single.csv")


def make_classifier(shape: tuple[int, ...] = (6,), *, seed: int = 0, **options) -> Classifier:
    bands = tuple(f"band {i}" for i in range(shape[0]))
    options = {"backbone": "mlp", "hidden": 8, **options}
    return build(ModelSpec(shape=shape, classes=CLASSES, bands=bands, **options), seed=seed)


@pytest.fixture
def classifier() -> Classifier:
    return make_classifier()


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


@pytest.fixture
def cnn() -> TinyCNN:
    return TinyCNN()


class FixedHead:
    """Of `FixedLogits`: every embedding is its logit, repeated."""

    def encode(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        return embeddings.float(), torch.full_like(embeddings.float(), 0.1)

    def logits(self, embeddings: Tensor) -> Tensor:
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
        logits = self.logits[: len(images)]
        return logits.half() if self.half_precision else logits

    def label_embeddings(self, images: Tensor) -> Tensor:
        return self(images).unsqueeze(-1).expand(-1, -1, self.width)

    def logits_and_early_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
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
    return Progress(epoch, epochs, (epoch - 1) * 2, 2)


@pytest.fixture
def permuted_truth() -> Callable[[Collection], Collection]:
    """The same collection with the clean labels of its train and val images shuffled."""

    def permute(collection: Collection) -> Collection:
        assert collection.truth is not None
        truth = collection.truth.copy()
        rng = np.random.default_rng(7)
        for name in ("train", "val"):
            rows = collection.splits[name]
            truth[rows] = truth[rng.permutation(rows)]
        return dataclasses.replace(collection, truth=truth)

    return permute


@pytest.fixture
def tiny(tmp_path: Path) -> Scenario:
    """A scenario whose runs take a second."""
    return write_scenario(tmp_path / "tiny")

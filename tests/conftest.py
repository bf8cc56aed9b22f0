"""Tiny collections and networks that several test folders share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from adagc.bench.scenarios import Scenario
from adagc.datasets.collection import Collection
from adagc.models import Classifier
from adagc.testing.processes import SPAWN
from adagc.testing.tiny import (
    CLASSES,
    FixedLogits,
    TinyCNN,
    make_batch,
    make_classifier,
    make_collection,
    make_labels,
    make_progress,
    make_task,
    make_text,
)
from planted import write_model
from tiny import write_scenario

# The mark `system`; a small run and its export; a browser.
pytest_plugins = ["machine", "exports", "web.visitors"]

# What tests are made of, published for everybody's tests in adagc.testing.
__all__ = [
    "CLASSES", "SPAWN", "FixedLogits", "TinyCNN", "make_batch", "make_classifier",
    "make_collection", "make_labels", "make_progress", "make_task", "make_text",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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


@pytest.fixture
def classifier() -> Classifier:
    return make_classifier()


@pytest.fixture
def cnn() -> TinyCNN:
    return TinyCNN()


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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An exported model whose probabilities are the means of its three bands over 8 x 8 pixels."""
    return write_model(tmp_path / "model")

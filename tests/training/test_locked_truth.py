"""Clean labels of train and validation must not reach any method that does not declare them."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from adagc.datasets.collection import Collection
from adagc.methods import Method, registry
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from conftest import make_collection, make_labels, make_text

# Methods that want class frequencies estimate them from observed labels.
BLIND = [cls for cls in registry().values() if "truth" not in cls.needs and not cls.oracle]
SIGHTED = [cls for cls in registry().values() if "truth" in cls.needs]


def config(labels: Path) -> RunConfig:
    return RunConfig(
        labels=str(labels), epochs=6, batch_size=8, learning_rate=0.02, hidden=8, average=0.9,
        accelerator="cpu", oracle=True, backbone="mlp", weights="none",
        text=str(make_text(labels.parent / "names.csv")),
    )  # fmt: skip


def trained(cls: type[Method], collection: Collection, labels: Path, out: Path) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(config(labels), cls(), out, collection=collection)


def weights(run: Run) -> dict[str, Tensor]:
    """Of every network, last and best: the choice of the best epoch must be blind as well."""
    return {
        f"{path.stem}/{name}": value
        for path in sorted(run.path("weights").glob("*.safetensors"))
        for name, value in load_file(path).items()
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def told(run: Run) -> list[dict]:
    hidden = {"oracle", "seconds", "train_seconds"}
    return [{k: v for k, v in line.to_dict().items() if k not in hidden} for line in run.history]


@pytest.mark.parametrize("cls", BLIND, ids=lambda cls: cls.title)
def test_permuting_clean_labels_changes_no_weights(cls, tmp_path, permuted_truth):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    other = permuted_truth(collection)
    assert not np.array_equal(other.truth, collection.truth)
    one = trained(cls, collection, labels, tmp_path / "one")
    two = trained(cls, other, labels, tmp_path / "two")
    assert equal(weights(one), weights(two))
    assert told(one) == told(two)
    assert one.read_json("scores.json") == two.read_json("scores.json")  # the test set is the same
    # The oracle did see the difference: it was there to be seen.
    assert one.history[-1].oracle != two.history[-1].oracle


@pytest.mark.parametrize("cls", SIGHTED, ids=lambda cls: cls.title)
def test_permuting_clean_labels_changes_those_who_declare_them(cls, tmp_path, permuted_truth):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    one = trained(cls, collection, labels, tmp_path / "one")
    two = trained(cls, permuted_truth(collection), labels, tmp_path / "two")
    assert not equal(weights(one), weights(two))


@pytest.mark.parametrize("cls", BLIND, ids=lambda cls: cls.title)
def test_without_any_clean_labels_the_weights_are_the_same(cls, tmp_path):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    one = trained(cls, collection, labels, tmp_path / "one")
    two = trained(cls, dataclasses.replace(collection, truth=None), labels, tmp_path / "two")
    assert equal(weights(one), weights(two))
    assert not two.path("scores.json").exists()


def test_there_are_methods_of_both_kinds():
    assert len(BLIND) >= 4
    assert len(SIGHTED) >= 2

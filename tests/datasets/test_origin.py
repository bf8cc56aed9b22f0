"""What `adagc inspect` says of how labels came about, on labels whose origin is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adagc.cli import main
from adagc.datasets import Collection, open_collection
from adagc.datasets.inspect.look import inspect_collection, render
from adagc.datasets.inspect.origin import Origin, origin
from adagc.labels import LabelTable, write_labels


@pytest.fixture(scope="module")
def scenes() -> Collection:
    return open_collection("synthetic", scenes=300, size=32)


def labels(scenes: Collection, how: str) -> LabelTable:
    """One label per scene, drawn in a way that is known."""
    assert scenes.truth is not None
    assert scenes.areas is not None
    there, generator = scenes.truth, np.random.default_rng(0)
    weight = there.astype(float)
    if how == "liked":
        weight *= np.exp(generator.normal(size=there.shape[1]))
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
    drawn = (weight.cumsum(axis=1) >= generator.random((len(there), 1))).argmax(axis=1)
    largest = (scenes.areas * there).argmax(axis=1)
    share = {"dominant": 1.0, "mixed": 0.5}.get(how, 0.0)
    chosen = np.where(generator.random(len(there)) < share, largest, drawn)
    values = np.zeros(there.shape, dtype=np.int8)
    rows = np.flatnonzero(there.any(axis=1))
    values[rows, chosen[rows]] = 1
    return LabelTable(scenes.images.names, scenes.classes, values, "single")


def found(scenes: Collection, how: str) -> Origin:
    assert scenes.truth is not None
    clean = LabelTable(scenes.images.names, scenes.classes, scenes.truth.astype(np.int8))
    one = origin(labels(scenes, how), clean, scenes.images.names, scenes.areas)
    assert one is not None
    return one


@pytest.mark.parametrize(
    ("how", "share", "words"),
    [
        ("random", 0.0, "look like random ones"),
        ("dominant", 1.0, "look like those of dominant classes"),
        ("mixed", 0.5, "neither random ones nor those of dominant classes alone"),
        ("liked", 0.0, "look like random ones"),
    ],
)
def test_share_of_labels_that_name_the_largest_class(how, share, words, scenes):
    one = found(scenes, how)
    assert one.dominance is not None
    assert one.dominance.low - 0.02 <= share <= one.dominance.high + 0.02
    assert one.dominance.high - one.dominance.low < 0.25
    assert words in one.sentences[0]


def test_classes_that_people_like_are_told_from_chance(scenes):
    assert "no class is named more often than chance would" in found(scenes, "random").sentences[1]
    assert "some classes are named more often" in found(scenes, "liked").sentences[1]


def test_order_of_rows_and_of_classes_does_not_matter(scenes):
    assert scenes.truth is not None
    assert scenes.areas is not None
    names, observed = scenes.images.names, labels(scenes, "mixed")
    clean = LabelTable(names, scenes.classes, scenes.truth.astype(np.int8))
    order = np.random.default_rng(1).permutation(len(names))
    again = origin(
        observed.select(scenes.classes[::-1]), clean.take(order), names, scenes.areas[order]
    )
    assert again is not None
    first = found(scenes, "mixed")
    assert again.images == first.images
    assert again.dominance == first.dominance
    assert again.distance.value == pytest.approx(first.distance.value)


def test_few_images_say_nothing(scenes):
    assert scenes.truth is not None
    clean = LabelTable(scenes.images.names, scenes.classes, scenes.truth.astype(np.int8))
    few = clean.take(np.arange(8))
    assert origin(labels(scenes, "random"), few, scenes.images.names) is None


def test_inspect_says_it(scenes, tmp_path, capsys):
    """Through the command too, which prints it and writes it as JSON."""
    write_labels(labels(scenes, "dominant"), tmp_path / "labels.csv")
    look = ["inspect", "--data", "synthetic", "--scenes", "300", "--size", "32"]
    assert main([*look, "--labels", str(tmp_path / "labels.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["origin"]["dominance"]["low"] > 0.9
    seen = inspect_collection(scenes, root="", kind="synthetic", labels=labels(scenes, "dominant"))
    from rich.console import Console

    console = Console(width=400)
    with console.capture() as caught:
        console.print(render(seen))
    assert "labels look like those of dominant classes: it is as if" in caught.get()

"""Checks that make whole runs: repeated, after an interruption, and on two ranks."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adagc.datasets.collection import Collection
from adagc.methods.base import Method
from adagc.methods.told import awaits
from adagc.testing.processes import compare_states, in_ranks
from adagc.testing.subject import Subject, expect, quiet, refused
from adagc.testing.tiny import make_collection, make_labels, make_text
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.records import EpochRecord
from adagc.training.runs import Run
from adagc.types import Batch, Losses, Progress, Task


class CannotCheckError(Exception):
    """Raised by a check that cannot be made here; the message says why."""


@dataclass(frozen=True)
class Place:
    """A temporary folder for runs, with the data and label files to train from."""

    folder: Path
    collection: Collection

    def config(self, **settings: Any) -> RunConfig:
        """The configuration of a run: three epochs of three steps, unless `settings` differ."""
        defaults = {
            "epochs": 3, "batch_size": 8, "learning_rate": 0.01, "hidden": 8, "dropout": 0.2,
            "backbone": "mlp", "weights": "none", "accelerator": "cpu", "oracle": False,
        }  # fmt: skip
        files = {name: str(self.folder / f"{name}.csv") for name in ("labels", "text")}
        return RunConfig(**{**files, **defaults, **settings})

    def train(self, method: Method, name: str, *, resume: bool = False, **settings: Any) -> Run:
        """Train a method into the folder of this name and return the run."""
        return train(
            self.config(**settings),
            method,
            self.folder / name,
            collection=self.collection,
            resume=resume,
        )


@contextmanager
def _place(kind: str = "images") -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder, quiet():
        place = Place(Path(folder), make_collection(kind))
        make_labels(place.collection, place.folder / "labels.csv")
        make_text(place.folder / "text.csv")
        yield place


def gives_the_same_weights_for_the_same_seed(subject: Subject) -> None:
    """Two runs of one seed end with the same weights, bit for bit, and another seed with others.

    The result does not depend on the state of torch's global random generator, and a run leaves
    that state unchanged.
    """
    weights = []
    with _place() as place, torch.random.fork_rng(devices=[]):
        for i, seed in enumerate((1, 1, 2)):
            torch.manual_seed(100 + i)
            state = torch.get_rng_state()
            run = place.train(subject.build(), str(i), seed=seed)
            expect(torch.equal(torch.get_rng_state(), state), "a run draws from torch's randomness")
            weights.append(load_file(run.path("model.safetensors")))
    first, repeated, other_seed = weights
    different = [name for name in first if not torch.equal(first[name], repeated[name])]
    expect(
        not different, f"the second run of a seed has other weights ({', '.join(different[:3])})"
    )
    equal = all(torch.equal(first[name], other_seed[name]) for name in first)
    expect(not equal, "another seed gives the same weights")


def sees_clean_labels_only_if_declared(subject: Subject) -> None:
    """A run gives a method clean labels and text only if its `needs` declares them.

    The same holds for class frequencies, which are estimated from observed labels, unless an option
    in `frequencies` is set; a method that has `fixed` numbers for them gets them, too.
    """
    tasks: list[Task] = []
    batches: list[Batch] = []

    class Spy(subject.cls):  # type: ignore[name-defined, misc]
        def setup(self, network: nn.Module, task: Task) -> None:
            tasks.append(task)
            super().setup(network, task)

        def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
            batches.append(batch)
            losses: Losses = super().loss(network, batch, progress)
            return losses

    needs = subject.cls.needs
    with _place() as place:
        place.train(Spy(**subject.options), "run", epochs=1, oracle=True)
        truth = place.collection.truth
        assert truth is not None
        clean = torch.from_numpy(truth[place.collection.splits["train"]])
    expect(len(tasks) == 1, f"setup was called {len(tasks)} times")
    wanted = {"truth": "truth" in needs, "text": "text" in needs}
    wanted["priors"] = awaits(subject.cls, subject.options)
    for name, want in wanted.items():
        given = getattr(tasks[0], name) is not None
        expect(given == want, f"the task has {'' if given else 'no '}{name}")
    expect(tasks[0].fresh is not None, "the task makes no further networks")
    expect(len(batches) == 3, f"loss was called {len(batches)} times in three steps")
    for batch in batches:
        expect((batch.truth is not None) == ("truth" in needs), "batches have other clean labels")
        if batch.truth is not None:
            same = torch.equal(batch.truth.bool(), clean[batch.index])
            expect(same, "the clean labels of a batch are of other images")


def stops_before_a_folder_exists(subject: Subject) -> None:
    """A run without the clean labels that a method needs is refused before anything is written.

    So the same command with --truth added can use the same folder.
    """
    cls = subject.cls
    if not cls.needs & {"truth", "priors"}:
        return
    with _place() as place:
        blind = replace(place, collection=replace(place.collection, truth=None))
        refused(
            lambda: blind.train(subject.build(), "run", epochs=1, priors="truth"),
            saying=f"{cls.title} needs ",
            otherwise="it trains without the clean labels that it needs",
        )
        expect(not (place.folder / "run").exists(), "the refused run left a folder behind")


def refuses_embeddings_where_positions_matter(subject: Subject) -> None:
    """A method that declares "feature_map" refuses pooled embeddings; any other trains on them.

    A method whose head works on maps must declare it.
    """
    cls = subject.cls
    on_map = subject.build().head().on_map
    expect(
        not on_map or "feature_map" in cls.needs,
        'its head works on feature maps, and "feature_map" is not in its needs',
    )
    with _place("embeddings") as place:
        if "feature_map" not in cls.needs:
            run = place.train(subject.build(), "run", epochs=1)
            expect(run.path("scores.json").exists(), "a run on embeddings has no scores")
            return
        refused(
            lambda: place.train(subject.build(), "run", epochs=1),
            saying=f"{cls.title} needs ",
            otherwise="it trains on embeddings although it declares that it needs positions",
        )
        expect(not (place.folder / "run").exists(), "the refused run left a folder behind")


def ends_alike_after_interruptions(subject: Subject) -> None:
    """A run that was interrupted twice ends with exactly the same state as one that was not.

    This is checked for the weights of all reported networks and the state of the method. Whatever
    a method remembers must be in its `state_dict`, and nothing may depend on how often the run was
    resumed.
    """
    settings: dict[str, Any] = {"epochs": 5, "average": 0.9}
    with _place() as place:
        whole = place.train(subject.build(), "whole", **settings)
        for stop in (2, 4):
            _interrupted(place, subject.build(), stop, settings)
        parts = place.train(subject.build(), "parts", resume=True, **settings)
        for name in sorted(path.name for path in whole.path("weights").iterdir()):
            expected, resumed = (load_file(run.path(f"weights/{name}")) for run in (whole, parts))
            _expect_equal(expected, resumed, f"weights/{name}")
        expected, resumed = (
            checkpoint.load(run.path("last.ckpt"))["method"] for run in (whole, parts)
        )
        expect(expected.keys() == resumed.keys(), "the method's state has other parts")
        _expect_equal(expected, resumed, "the method's state")


class _EnoughError(Exception):
    pass


def _interrupted(place: Place, method: Method, epoch: int, settings: Mapping[str, Any]) -> None:
    """Train, or resume, until the end of this epoch and stop there as if the run were killed."""

    def stop(line: EpochRecord) -> None:
        if line.epoch == epoch:
            raise _EnoughError

    try:
        train(
            place.config(**settings), method, place.folder / "parts",
            collection=place.collection, resume=True, on_epoch=stop,
        )  # fmt: skip
    except _EnoughError:
        return
    raise AssertionError(f"there was no epoch {epoch}")


def _expect_equal(expected: Mapping[str, Any], resumed: Mapping[str, Any], where: str) -> None:
    for name, value in expected.items():
        if isinstance(value, Tensor):
            same = torch.equal(value, resumed[name])
            expect(same, f"{name} in {where} differs from that of an uninterrupted run")


def trains_on_two_ranks_what_one_process_trains(subject: Subject) -> None:
    """Two processes that train together end with the same weights as one process.

    Every rank gets the labels and logits of the whole batch, so a method must compute the same on
    both. A method that has a network of its own must call it through `adagc.ranks.spread`.
    """
    cls = subject.cls
    try:
        imported: Any = importlib.import_module(cls.__module__)
        for name in cls.__qualname__.split("."):
            imported = getattr(imported, name)
    except (ImportError, AttributeError):
        imported = None
    if imported is not cls or cls.__module__ == "__main__":
        raise CannotCheckError(
            f"another process cannot import {cls.__qualname__}: define it at the top of a module"
        )
    # No dropout, because the draws of a network's layers differ between ranks.
    settings: dict[str, Any] = {
        "dropout": 0.0, "learning_rate": 0.003, "average": 0.9, "clip": 1.0, "oracle": True,
    }  # fmt: skip
    with _place() as place:
        one = place.train(subject.build(), "one", **settings)
        in_ranks(_train_as_rank, cls, dict(subject.options), str(place.folder), settings)
        states = [checkpoint.load(run / "last.ckpt") for run in (one.folder, place.folder / "two")]
        for part in ("network", "averaged", "method"):
            if states[0][part] is not None:  # a method that deploys an average has no second one
                compare_states(part, *(state[part] for state in states))
        names = [_files(run) for run in (one.folder, place.folder / "two")]
        expect(names[0] == names[1], f"only one of the two left {sorted(names[0] ^ names[1])}")
        lines = (place.folder / "two" / "history.jsonl").read_text("utf-8").splitlines()
        expect(len(lines) == 3, f"{len(lines)} lines of history for three epochs")


def _files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if "events" not in path.name)
    return {str(path.relative_to(folder)) for path in paths}


def _train_as_rank(
    cls: type[Method], options: dict[str, Any], folder: str, settings: dict[str, Any]
) -> None:
    with quiet():
        Place(Path(folder), make_collection("images")).train(cls(**options), "two", **settings)

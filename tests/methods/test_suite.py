"""One suite over the registry: a new method is tested without a new test."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adagc.errors import AdagcError
from adagc.methods import Method, registry
from adagc.methods.base import NEEDS
from adagc.metrics import score
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import options_of, train
from adagc.types import Batch, Losses, Task
from conftest import (
    FixedLogits,
    make_batch,
    make_classifier,
    make_collection,
    make_labels,
    make_progress,
    make_task,
    make_text,
)

OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)
SCORES = score([[True, False], [False, True]], [[0.9, 0.1], [0.2, 0.8]])
SHAPES = {"embeddings": (6,), "maps": (6, 2, 2), "images": (3, 64, 64)}
EVERY = pytest.mark.parametrize("cls", registry().values(), ids=registry().keys())


def two_epochs(method: Method, network: nn.Module, task: Task, images: Tensor) -> list[Losses]:
    """One step in each of two epochs, with everything the loop does around them.

    A run of one epoch makes a method with stages go on to the next one as soon as it can.
    """
    groups = method.parameter_groups(network, 0.05)
    optimiser = torch.optim.Adam(groups)
    found = []
    for epoch in (1, 2):
        network.train()
        method.train()
        losses = method.loss(network, make_batch(images, task, seed=epoch), make_progress(epoch, 1))
        losses.total.backward()
        found.append(losses)
        optimiser.step()
        method.after_step(network)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.end_epoch(SCORES, make_progress(epoch, 1))
        if epoch == 1:
            optimiser.zero_grad()
    return found


def network_for(cls: type[Method], kind: str = "maps", seed: int = 0) -> nn.Module:
    """A small network with the head that the method asks for."""
    backbone = "test_resnet" if kind == "images" else "mlp"
    return make_classifier(SHAPES[kind], backbone=backbone, head=cls().head(), seed=seed)


def values_for(kind: str, rows: int = 6) -> Tensor:
    return torch.rand(rows, *SHAPES[kind], generator=torch.Generator().manual_seed(0))


def set_up(
    cls: type[Method],
    network: nn.Module,
    observed: Tensor = OBSERVED,
    fresh: Callable[[int], nn.Module] | None = None,
) -> tuple[Method, Task]:
    method = cls()
    task = make_task(observed, oracle=cls.needs, fresh=fresh or partial(network_for, cls, "maps"))
    method.setup(network, task)
    return method, task


@EVERY
def test_is_built_without_data_and_keeps_its_options(cls):
    method = cls()
    assert method.needs <= NEEDS
    assert isinstance(method.title, str)
    assert cls.__doc__
    options = options_of(method)
    assert set(method.grid) <= set(options)
    again = cls(**options)
    assert options_of(again) == options
    assert not list(method.parameters())
    with pytest.raises(TypeError):
        cls(no_such_option=1)


@EVERY
@pytest.mark.parametrize("kind", ["embeddings", "maps", "images"])
def test_two_steps_run_and_reach_what_is_trained_and_nothing_else(cls, kind):
    if kind == "embeddings" and cls().head().on_map:
        with pytest.raises(AdagcError, match=r"positions.*give images or stored feature maps"):
            network_for(cls, kind)
        return
    network, images = network_for(cls, kind), values_for(kind)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    method, task = set_up(cls, network, fresh=lambda seed: network_for(cls, kind, seed))
    kept = images.clone()
    for losses in two_epochs(method, network, task, images):
        assert losses.total.dim() == 0
        assert losses.total.isfinite()
        assert losses.parts
        assert all(part.isfinite() for part in losses.parts.values())
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()
        assert not torch.equal(parameter, before[name]), name
    trained = {id(p) for group in method.parameter_groups(network, 1.0) for p in group["params"]}
    assert {id(p) for p in network.parameters()} <= trained
    for name, parameter in method.named_parameters():
        if id(parameter) not in trained:
            assert not parameter.requires_grad, name
            assert parameter.grad is None
    assert torch.equal(images, kept)
    assert torch.equal(task.observed, OBSERVED)
    estimates = method.estimates()
    assert estimates is None or estimates.shape == OBSERVED.shape


NONE_OF_CLASS_3 = OBSERVED * torch.tensor([1, 1, 1, 0], dtype=torch.int8)
HARD = {
    "extreme": (
        torch.tensor([[60.0, -60.0, 60.0, -60.0]] * 3 + [[-60.0, 60.0, -60.0, 60.0]] * 3),
        OBSERVED,
    ),
    "batch of one": (torch.randn(1, 4), OBSERVED[:1]),
    "class without positive": (torch.randn(6, 4), NONE_OF_CLASS_3),
    "all positive": (torch.randn(6, 4), torch.ones_like(OBSERVED)),
    "nothing observed": (torch.randn(6, 4), torch.zeros_like(OBSERVED)),
    "all seen to be absent": (torch.randn(6, 4), -torch.ones_like(OBSERVED)),
    "half precision": (torch.randn(6, 4), OBSERVED),
}


@EVERY
@pytest.mark.parametrize("case", HARD)
def test_hard_batches_stay_finite(cls, case):
    logits, observed = HARD[case]
    network = FixedLogits(logits, half=case == "half precision")
    peer = FixedLogits(logits.flip(1), half=case == "half precision")
    method, task = set_up(cls, network, observed, fresh=lambda seed: peer)
    for losses in two_epochs(method, network, task, torch.zeros(len(logits), 1)):
        assert losses.total.isfinite()
    assert network.logits.grad is not None
    assert network.logits.grad.isfinite().all()


@EVERY
def test_state_survives_save_and_load(cls, tmp_path):
    network, images = network_for(cls), values_for("maps")
    method, task = set_up(cls, network)
    two_epochs(method, network, task, images)
    torch.save([network.state_dict(), method.state_dict()], tmp_path / "state.ckpt")
    weights, state = torch.load(tmp_path / "state.ckpt", weights_only=True)
    twin_network = network_for(cls, seed=9)
    twin, _ = set_up(cls, twin_network)
    twin_network.load_state_dict(weights)
    twin.load_state_dict(state)
    one = method.loss(network, make_batch(images, task, seed=5), make_progress(3, 4))
    other = twin.loss(twin_network, make_batch(images, task, seed=5), make_progress(3, 4))
    assert torch.equal(one.total, other.total)
    assert method.status() == twin.status()


REMEDY = {"truth": "--truth", "priors": "--truth", "text": "--text"}


@EVERY
def test_a_missing_need_is_one_line(cls):
    network, task = network_for(cls), make_task(OBSERVED, fresh=partial(network_for, cls, "maps"))
    needs = sorted(cls.needs & REMEDY.keys())
    if not needs:
        cls().setup(network, task)
        return
    with pytest.raises(AdagcError) as caught:
        cls().setup(network, task)
    message = str(caught.value)
    assert message.startswith(f"{cls.title} needs ")
    assert "\n" not in message
    assert REMEDY[needs[0]] in message


# -- through a whole run ---------------------------------------------------------------------


def config(labels: Path, **options) -> RunConfig:
    defaults = {
        "epochs": 3, "batch_size": 8, "learning_rate": 0.01, "hidden": 8, "dropout": 0.2,
        "backbone": "mlp", "weights": "none", "accelerator": "cpu", "oracle": False,
    }  # fmt: skip
    text = str(make_text(labels.parent / "names.csv"))
    return RunConfig(labels=str(labels), text=text, **{**defaults, **options})


@EVERY
@pytest.mark.filterwarnings("ignore:calibration starts after")
def test_same_seed_same_weights(cls, tmp_path):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    found = []
    for i, seed in enumerate((1, 1, 2)):
        torch.manual_seed(100 + i)  # what others do to torch must not matter, nor we to them
        state = torch.get_rng_state()
        run = train(config(labels, seed=seed), cls(), tmp_path / str(i), collection=collection)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(load_file(run.path("model.safetensors")))
    one, same, other = found
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@EVERY
def test_clean_labels_are_handed_over_only_if_declared(cls, tmp_path):
    tasks: list[Task] = []
    batches: list[Batch] = []

    class Spy(cls):
        def setup(self, network, task):
            tasks.append(task)
            super().setup(network, task)

        def loss(self, network, batch, progress):
            batches.append(batch)
            return super().loss(network, batch, progress)

    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(config(labels, epochs=1, oracle=True), Spy(), tmp_path / "run", collection=collection)
    (task,) = tasks
    assert (task.truth is not None) == ("truth" in cls.needs)
    assert (task.priors is not None) == ("priors" in cls.needs)
    assert (task.text is not None) == ("text" in cls.needs)
    assert task.fresh is not None
    assert len(batches) == 3
    for batch in batches:
        assert (batch.truth is not None) == ("truth" in cls.needs)
        if batch.truth is not None:
            rows = collection.splits["train"][batch.index.numpy()]
            assert torch.equal(batch.truth.bool(), torch.from_numpy(collection.truth[rows]))


@EVERY
def test_a_missing_need_stops_before_a_run_folder_exists(cls, tmp_path):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    blind = dataclasses.replace(collection, truth=None)
    out = tmp_path / "run"
    if not cls.needs & {"truth", "priors"}:
        return
    with pytest.raises(AdagcError, match=r"needs (truth|priors)"):
        train(config(labels, epochs=1), cls(), out, collection=blind)
    assert not out.exists()  # the same command with --truth may use the same folder


@EVERY
def test_pooled_embeddings_are_refused_where_positions_matter(cls, tmp_path):
    collection = make_collection("embeddings")
    labels = make_labels(collection, tmp_path / "labels.csv")
    out = tmp_path / "run"
    if "feature_map" not in cls.needs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = train(config(labels, epochs=1), cls(), out, collection=collection)
        assert run.path("scores.json").exists()
        return
    with pytest.raises(AdagcError, match=rf"{re.escape(cls.title)} needs .*stored feature maps"):
        train(config(labels, epochs=1), cls(), out, collection=collection)
    assert not out.exists()


@EVERY
@pytest.mark.filterwarnings("ignore:calibration starts after")
def test_an_interrupted_run_ends_bit_for_bit_like_a_whole_one(cls, tmp_path):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    settings = config(labels, epochs=5, average=0.9)
    whole = train(settings, cls(), tmp_path / "whole", collection=collection)

    class EnoughError(Exception):
        pass

    def stop(line):
        if line.epoch in (2, 4):
            raise EnoughError

    for _ in range(2):
        with pytest.raises(EnoughError):
            train(
                settings, cls(), tmp_path / "parts", collection=collection, resume=True,
                on_epoch=stop,
            )  # fmt: skip
    parts = train(settings, cls(), tmp_path / "parts", collection=collection, resume=True)
    for name in sorted(path.name for path in whole.path("weights").iterdir()):
        one, other = (load_file(run.path(f"weights/{name}")) for run in (whole, parts))
        assert all(torch.equal(one[key], other[key]) for key in one), name
    states = [checkpoint.load(run.path("last.ckpt"))["method"] for run in (whole, parts)]
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        same = torch.equal(value, states[1][key]) if isinstance(value, Tensor) else True
        assert same, key

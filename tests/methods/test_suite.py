"""One suite over the registry: a new method is tested without a new test."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adagc.errors import AdagcError
from adagc.methods import Method, registry
from adagc.methods.base import NEEDS
from adagc.metrics import score
from adagc.training.config import RunConfig
from adagc.training.experiment import options_of, train
from adagc.types import Batch, Losses, Task
from conftest import (
    FixedLogits,
    TinyCNN,
    make_batch,
    make_classifier,
    make_collection,
    make_labels,
    make_progress,
    make_task,
)

OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)
SCORES = score([[True, False], [False, True]], [[0.9, 0.1], [0.2, 0.8]])
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
        method.merge()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.end_epoch(SCORES, make_progress(epoch, 1))
        if epoch == 1:
            optimiser.zero_grad()
    return found


def set_up(
    cls: type[Method], network: nn.Module, observed: Tensor = OBSERVED
) -> tuple[Method, Task]:
    method, task = cls(), make_task(observed, oracle=cls.needs)
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
@pytest.mark.parametrize("kind", ["embeddings", "images"])
def test_two_steps_run_and_reach_the_network_alone(cls, kind):
    generator = torch.Generator().manual_seed(0)
    if kind == "embeddings":
        network, images = make_classifier(), torch.rand(6, 6, generator=generator)
    else:
        network, images = TinyCNN(), torch.rand(6, 3, 6, 6, generator=generator)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    method, task = set_up(cls, network)
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
    method, task = set_up(cls, network, observed)
    for losses in two_epochs(method, network, task, torch.zeros(len(logits), 1)):
        assert losses.total.isfinite()
    assert network.logits.grad is not None
    assert network.logits.grad.isfinite().all()


@EVERY
def test_state_survives_save_and_load(cls, tmp_path):
    network, images = (
        make_classifier(),
        torch.rand(6, 6, generator=torch.Generator().manual_seed(0)),
    )
    method, task = set_up(cls, network)
    two_epochs(method, network, task, images)
    torch.save([network.state_dict(), method.state_dict()], tmp_path / "state.ckpt")
    weights, state = torch.load(tmp_path / "state.ckpt", weights_only=True)
    twin_network = make_classifier(seed=9)
    twin, _ = set_up(cls, twin_network)
    twin_network.load_state_dict(weights)
    twin.load_state_dict(state)
    one = method.loss(network, make_batch(images, task, seed=5), make_progress(3, 4))
    other = twin.loss(twin_network, make_batch(images, task, seed=5), make_progress(3, 4))
    assert torch.equal(one.total, other.total)
    assert method.status() == twin.status()


@EVERY
def test_a_missing_need_is_one_line(cls):
    if not cls.needs:
        cls().setup(make_classifier(), make_task(OBSERVED))
        return
    with pytest.raises(AdagcError) as caught:
        cls().setup(make_classifier(), make_task(OBSERVED))
    message = str(caught.value)
    assert message.startswith(f"{cls.title} needs ")
    assert "\n" not in message
    assert "--truth" in message


# -- through a whole run ---------------------------------------------------------------------


def config(labels: Path, **options) -> RunConfig:
    defaults = {
        "epochs": 3, "batch_size": 8, "learning_rate": 0.01, "hidden": 8, "dropout": 0.2,
        "accelerator": "cpu", "oracle": False,
    }  # fmt: skip
    return RunConfig(labels=str(labels), **{**defaults, **options})


@EVERY
@pytest.mark.filterwarnings("ignore:calibration starts after")
def test_same_seed_same_weights(cls, tmp_path):
    collection = make_collection()
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

    collection = make_collection()
    labels = make_labels(collection, tmp_path / "labels.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(config(labels, epochs=1, oracle=True), Spy(), tmp_path / "run", collection=collection)
    (task,) = tasks
    assert (task.truth is not None) == ("truth" in cls.needs)
    assert (task.priors is not None) == ("priors" in cls.needs)
    assert (task.text is not None) == ("text" in cls.needs)
    assert len(batches) == 3
    for batch in batches:
        assert (batch.truth is not None) == ("truth" in cls.needs)
        if batch.truth is not None:
            rows = collection.splits["train"][batch.index.numpy()]
            assert torch.equal(batch.truth.bool(), torch.from_numpy(collection.truth[rows]))


@EVERY
def test_a_missing_need_stops_before_a_run_folder_exists(cls, tmp_path):
    collection = make_collection()
    labels = make_labels(collection, tmp_path / "labels.csv")
    blind = dataclasses.replace(collection, truth=None)
    out = tmp_path / "run"
    if not cls.needs:
        return
    with pytest.raises(AdagcError, match=r"needs (truth|priors)"):
        train(config(labels, epochs=1), cls(), out, collection=blind)
    assert not out.exists()  # the same command with --truth may use the same folder

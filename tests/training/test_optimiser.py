"""The optimisers and recipes of the originals: off by default, and exact where asked for."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc.errors import AdagcError, UsageError
from adagc.labels import simulate_random
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.base import Method
from adagc.methods.rcml import RCML
from adagc.methods.role import Role
from adagc.training.folders import DiskFolder
from adagc.training.loop import Settings, Validation, fit
from adagc.training.optimiser import make_optimiser
from adagc.types import Task
from conftest import TinyCNN, make_classifier, make_collection
from reference.slow_optimisers import follow

CPU = torch.device("cpu")
State = dict[str, Tensor]


def network(seed: int = 0) -> nn.Module:
    """A convolutional network, with batch normalisation in its backbone."""
    return make_classifier((3, 64, 64), backbone="test_resnet", seed=seed)


def run(
    folder: Path,
    method: Method,
    net: nn.Module | None = None,
    *,
    resume: bool = False,
    stop: int = 0,
    **changes,
) -> list[tuple[State, State]]:
    """Train for a few epochs; the states of network and method before the first and after each."""
    collection = make_collection("images")
    train, val = collection.splits["train"], collection.splits["val"]
    observed = torch.from_numpy(simulate_random(collection.truth, 0))
    chosen = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "accelerator": "cpu", **changes}
    net = network() if net is None else net
    task = Task(collection.classes, observed[train], chosen["epochs"], 3, 0, fresh=network)
    folder.mkdir(exist_ok=True)
    states = [(copy.deepcopy(net.state_dict()), {})]

    def after(line):
        states.append((copy.deepcopy(net.state_dict()), copy.deepcopy(method.state_dict())))
        if line.epoch == stop:
            raise KeyboardInterrupt

    fit(
        net, method, task, collection.images, train, Validation(val, observed[val].numpy()),
        DiskFolder(folder), Settings(**chosen), resume=resume, on_epoch=after,
    )  # fmt: skip
    return states


def moved(before: State, after: State, part: str) -> bool:
    """Whether anything whose name begins like this has changed, statistics included."""
    names = [name for name in before if name.startswith(part)]
    assert names
    return any(not torch.equal(before[name], after[name]) for name in names)


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# -- optimisers ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adam", "adamw", "adamax", "sgd"])
@examples(max_examples=25, deadline=None)
@given(
    weight=st.floats(-2, 2),
    gradients=st.lists(st.floats(-3, 3).filter(lambda g: abs(g) > 1e-3), min_size=1, max_size=6),
    rate=st.sampled_from([0.1, 0.01]),
    decay=st.sampled_from([0.0, 0.1]),
)
def test_every_optimiser_agrees_with_its_slow_twin(kind, weight, gradients, rate, decay):
    parameter = nn.Parameter(torch.tensor([weight], dtype=torch.float64))
    chosen = Settings(optimiser=kind, learning_rate=rate, weight_decay=decay)
    optimiser = make_optimiser([{"params": [parameter], "lr": rate}], [], chosen, CPU)
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimiser.step()
    wanted = follow(kind, float(weight), gradients, rate, decay)
    assert parameter.item() == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_the_default_is_adam_as_ever():
    parameter = nn.Parameter(torch.zeros(3))
    groups = [{"params": [parameter], "lr": 5e-4}]
    made = make_optimiser(groups, [], Settings(), CPU)
    assert type(made) is torch.optim.Adam
    assert made.state_dict() == torch.optim.Adam(groups, lr=5e-4, fused=True).state_dict()


def test_a_run_uses_the_optimiser_it_was_given(tmp_path):
    ends = {
        kind: run(tmp_path / kind, AssumeNegative(), epochs=1, optimiser=kind)[-1][0]
        for kind in ("adam", "adamax", "sgd")
    }
    assert len({float(end["head.weight"].sum()) for end in ends.values()}) == 3


# -- the last layer --------------------------------------------------------------------------


def test_the_head_has_its_own_learning_rate(tmp_path):
    for name, rates, wanted in (
        ("still", (0.01, 0.0), (True, False)),
        ("alone", (0.0, 0.01), (False, True)),
    ):
        (before, _), (after, _) = run(
            tmp_path / name, AssumeNegative(), epochs=1,
            learning_rate=rates[0], head_learning_rate=rates[1],
        )  # fmt: skip
        # The statistics of batch normalisation are no weights: they move at any rate.
        conv = moved(before, after, "backbone.net.layer1.0.conv1.weight")
        assert (conv, moved(before, after, "head")) == wanted


def test_the_rate_of_the_head_follows_the_schedule(tmp_path):
    """In a group of its own, but with the same rate, it ends where it does in one group."""
    plain, head = (
        run(tmp_path / name, AssumeNegative(), epochs=1, schedule="cosine", **rate)[1][0]
        for name, rate in (("a", {}), ("b", {"head_learning_rate": 0.01}))
    )
    assert same(plain, head)
    faster = run(
        tmp_path / "c", AssumeNegative(), epochs=1, schedule="cosine", head_learning_rate=0.1
    )[1][0]
    assert not same(plain, faster)


def test_other_groups_of_a_method_keep_their_rates():
    net, method = network(), Role(rate=10.0)
    task = Task(("a", "b", "c", "d"), torch.tensor([[1, 0, 0, 0]], dtype=torch.int8), 1, 1, 0)
    method.setup(net, task)
    groups = method.parameter_groups(net, 0.01)
    chosen = Settings(learning_rate=0.01, head_learning_rate=0.1)
    made = make_optimiser(groups, (net, method), chosen, CPU).param_groups
    assert [group["lr"] for group in made] == [0.01, 0.1, 0.1]
    heads = [id(p) for p in net.head.parameters()]
    assert [id(p) for p in made[1]["params"]] == heads
    assert made[2]["params"][0] is method.theta
    assert (made[2]["clip"], made[2]["weight_decay"]) == (False, 0.0)
    counted = sum(len(group["params"]) for group in made)
    assert counted == len(list(net.parameters())) + 1


def test_a_second_network_has_a_head_too(tmp_path):
    states = run(
        tmp_path, RCML(ramp_epochs=0), epochs=1, learning_rate=0.0, head_learning_rate=0.01
    )
    (_, after) = states[-1]
    peer = {name.removeprefix("peer."): value for name, value in after.items()}
    start = network(1).state_dict()
    assert moved(start, peer, "head")
    assert not moved(start, peer, "backbone.net.layer1.0.conv1.weight")


def test_a_network_without_a_head_is_refused(tmp_path):
    with pytest.raises(AdagcError, match="--head-learning-rate needs a network with a head"):
        run(tmp_path / "a", AssumeNegative(), TinyCNN(), head_learning_rate=0.1)
    with pytest.raises(AdagcError, match="--head-epochs needs a network with a backbone"):
        run(tmp_path / "b", AssumeNegative(), TinyCNN(), head_epochs=1)
    for name in ("head_learning_rate", "head_epochs"):
        with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be"):
            Settings(**{name: -1})


# -- the head first --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [AssumeNegative, lambda: AdaGC(trigger_epoch=1)], ids=["AN", "AdaGC calibrating"]
)
def test_the_head_is_trained_alone_at_first(tmp_path, method):
    states = [state for state, _ in run(tmp_path, method(), epochs=4, head_epochs=2)]
    for before, after, body in zip(states, states[1:], (False, False, True, True), strict=False):
        assert moved(before, after, "head")
        assert moved(before, after, "backbone") == body


def test_only_what_is_trained_is_released(tmp_path):
    """The teacher's weights never get gradients; the network's do, after the first epochs."""
    net, method = network(), AdaGC()
    run(tmp_path, method, net, epochs=2, head_epochs=1)
    assert all(p.requires_grad for p in net.parameters())
    assert not any(p.requires_grad for p in method.teacher.parameters())


def test_a_peer_waits_too_and_other_parameters_do_not(tmp_path):
    states = run(tmp_path / "rcml", RCML(), epochs=1, head_epochs=1)
    peer = {name.removeprefix("peer."): value for name, value in states[-1][1].items()}
    start = network(1).state_dict()
    assert moved(start, peer, "head")
    assert not moved(start, peer, "backbone")
    role = run(tmp_path / "role", Role(), epochs=2, head_epochs=2)
    assert moved(role[1][1], role[2][1], "theta")


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_an_interrupted_run_ends_bit_for_bit_like_a_whole_one(tmp_path, stop):
    how = {"epochs": 4, "head_epochs": 2, "head_learning_rate": 0.1, "optimiser": "adamax"}
    whole = run(tmp_path / "whole", Role(), **how)[-1]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", Role(), stop=stop, **how)
    parts = run(tmp_path / "parts", Role(), resume=True, **how)[-1]
    assert same(whole[0], parts[0])
    assert same(whole[1], parts[1])

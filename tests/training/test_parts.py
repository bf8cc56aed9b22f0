"""A batch that goes through the network in parts: the same loss, gradient and weights."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import adagc.training.network as network_module
from adagc import ranks
from adagc.cli import main
from adagc.methods import find, registry
from adagc.ranks import parts
from adagc.testing.processes import in_ranks
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.settings import Settings
from conftest import make_collection, make_labels, make_text


def small(norm=None, dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), norm or nn.GroupNorm(2, 4), nn.ReLU(), nn.Dropout(dropout),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
    ).double()  # fmt: skip


def images(rows=11):
    return torch.randn(
        rows, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def look_across(logits):
    """A loss that depends on the whole batch: the largest entries, and the mean of each class."""
    entries = functional.softplus(logits) * logits.sigmoid()
    return entries.flatten().topk(9).values.sum() + logits.mean(dim=0).square().sum()


def gradients(network, rows, at_once, loss=look_across):
    network.zero_grad()
    with ranks.in_parts(at_once):
        value = loss(ranks.spread(network, rows))
    value.backward()
    return value.detach(), [parameter.grad.clone() for parameter in network.parameters()]


@pytest.mark.parametrize("at_once", [2, 3, 4, 10])
def test_loss_and_gradient_are_those_of_the_whole_batch(at_once):
    network = small()
    expected, whole = gradients(network, images(), None)
    value, found = gradients(network, images(), at_once)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_losses_of_parts_added_up_would_be_another_loss():
    network = small()
    whole, _ = gradients(network, images(), None)
    added = sum(look_across(network(part)) for part in images().tensor_split(4)) / 4
    assert abs(added - whole) > 1e-2


_MEMORY = """
import sys, torch
from adagc import ranks
from adagc.testing.tiny import make_classifier
torch.set_num_threads(1)
network = make_classifier((12, 112, 112), backbone="resnet18")
images = torch.rand(48, 12, 112, 112)
network(images[:2]).sum().backward()
def peak():  # of this program: what getrusage says may be that of the process that started it
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
before = peak()
with ranks.in_parts(int(sys.argv[1]) or None):
    loss = ranks.spread(network, images).square().mean()
loss.backward()
print(peak() - before)
"""


def test_parts_need_a_fraction_of_the_memory():
    def peak(at_once):
        command = [sys.executable, "-c", _MEMORY, str(at_once)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return int(done.stdout)

    assert peak(4) < 0.45 * peak(0)


def test_dropout_of_a_part_is_the_same_on_the_way_back():
    network = small(dropout=0.5)
    torch.manual_seed(5)
    _, found = gradients(network, images(), 4)
    after = torch.rand(3)
    torch.manual_seed(5)
    network.zero_grad()
    logits = torch.cat([network(part) for part in images().tensor_split(3)])
    look_across(logits).backward()
    for one, parameter in zip(found, network.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.rand(3), after)  # and the way back draws nothing


def test_batch_normalisation_uses_the_statistics_of_a_part():
    network, rows = small(nn.BatchNorm2d(4, momentum=0.1)), images(12)
    norm = network[1]
    torch.manual_seed(3)
    norm.running_mean.normal_()
    before = norm.running_mean.clone()
    _, found = gradients(network, rows, 4)
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()

    network.zero_grad()
    logits = torch.cat([network(part) for part in rows.split(4)])
    look_across(logits).backward()
    for one, parameter in zip(found, network.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-10, atol=1e-12)

    # what was there before has the weight 0.9, as after one batch, and the way back added nothing
    values = network[0](rows).detach()
    means = [part.mean(dim=(0, 2, 3)) for part in values.split(4)]
    each = 1 - 0.9 ** (1 / 3)
    expected = before
    for part in means:
        expected = expected.lerp(part, each)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(
        mean - 0.9 * before, 0.1 * values.mean(dim=(0, 2, 3)), rtol=0.2, atol=2e-3
    )
    assert (variance != 1).all()


def test_without_gradient_nothing_is_run_twice():
    calls = []

    def count(rows):
        calls.append(len(rows))
        return rows.flatten(1), rows.mean(dim=(1, 2, 3))

    with torch.no_grad(), ranks.in_parts(4):
        first, second = ranks.spread(count, images())
    assert calls == [4, 4, 3]
    torch.testing.assert_close(first, images().flatten(1))
    torch.testing.assert_close(second, images().mean(dim=(1, 2, 3)))
    calls.clear()
    with torch.no_grad():
        ranks.spread(count, images())
    assert calls == [11]


@pytest.mark.parametrize(
    ("rows", "at_once", "sizes"), [(3, 2, [3]), (5, 2, [3, 2]), (9, 4, [3] * 3)]
)
def test_a_part_has_two_rows_at_least(rows, at_once, sizes):
    found = []
    with torch.no_grad(), ranks.in_parts(at_once):
        ranks.spread(lambda part: found.append(len(part)) or part, images(rows))
    assert found == sizes


METHODS = list(registry())


def untested():
    """Images for training and validation; networks that are read from a file are not double."""
    whole = make_collection("images")
    splits = {name: rows for name, rows in whole.splits.items() if name != "test"}
    return dataclasses.replace(whole, splits=splits)


def train_in_double(place, title, name, **settings):
    """Three epochs of three steps without batch normalisation, dropout or rounding."""
    config = RunConfig(
        labels=str(place / "labels.csv"), text=str(place / "names.csv"), backbone="mlp", hidden=8,
        weights="none", accelerator="cpu", batch_size=8, epochs=3, average=0.9, clip=1.0,
        learning_rate=0.003, priors="published", **settings,
    )  # fmt: skip
    return train(config, find(title)(), place / name, collection=untested())


@pytest.fixture
def double(monkeypatch, tmp_path):
    single = network_module.build
    monkeypatch.setattr(
        network_module, "build", lambda *told, **options: single(*told, **options).double()
    )
    make_labels(make_collection("images"), tmp_path / "labels.csv")
    make_text(tmp_path / "names.csv")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield tmp_path
    torch.set_default_dtype(before)


@pytest.mark.parametrize("title", METHODS)
def test_every_method_trains_in_parts_as_at_once(double, monkeypatch, title):
    ran = []
    run = parts.run

    def spy(function, mine, total):
        ran.append(parts._parts(total))
        return run(function, mine, total)

    monkeypatch.setattr("adagc.ranks.passes.run", spy)
    whole = train_in_double(double, title, "whole")
    assert set(ran) <= {1}
    ran.clear()
    found = train_in_double(double, title, "parts", device_batch=3)
    assert max(ran) == 3  # 8 images in parts of 3, 3 and 2
    states = [checkpoint.load(run.path("last.ckpt")) for run in (whole, found)]
    for part in ("network", "averaged", "method"):
        if states[0][part] is None:
            continue
        for name, value in states[0][part].items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                torch.testing.assert_close(
                    states[1][part][name], value, rtol=1e-6, atol=1e-6, msg=f"{part}: {name}"
                )
            elif isinstance(value, torch.Tensor):
                assert torch.equal(states[1][part][name], value), f"{part}: {name}"


def rank_in_parts(folder, count):
    """AdaGC with batch normalisation; each rank runs its images in two parts."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    single = network_module.build
    network_module.build = lambda *told, **options: single(*told, **options).double()
    config = RunConfig(
        labels=f"{folder}/labels.csv", backbone="test_resnet", weights="none", accelerator="cpu",
        batch_size=8, epochs=2, learning_rate=0.003, device_batch=8 // count // 2,
    )  # fmt: skip
    train(config, find("AdaGC")(), f"{folder}/{count}", collection=untested())


def test_two_ranks_train_in_parts_as_one(tmp_path):
    make_labels(make_collection("images"), tmp_path / "labels.csv")
    for count in (1, 2):
        in_ranks(rank_in_parts, str(tmp_path), count, count=count)
    states = [checkpoint.load(tmp_path / f"{count}" / "last.ckpt") for count in (1, 2)]
    for part in ("network", "method"):
        for name, value in states[0][part].items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(states[1][part][name], value, rtol=1e-6, atol=1e-6)


def test_the_size_is_checked(capsys):
    with pytest.raises(Exception, match="--device-batch must be at least 2, not 1"):
        Settings(device_batch=1)
    assert main(["train", ".", "--out", "run", "--device-batch", "0"]) == 2
    assert "--device-batch" in capsys.readouterr().err

"""Two processes must be one: real gloo ranks against a single process on the same batches."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from adagc import ranks
from adagc.errors import UsageError
from adagc.methods import find, registry
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.fabric import make_fabric
from adagc.training.loop import Settings
from adagc.types import Verdict
from conftest import SPAWN, make_collection, make_labels, make_text

METHODS = [*registry()]


def config(labels: str, text: str | None) -> RunConfig:
    """Images through plain layers: nothing random and no statistics of a share in the network."""
    return RunConfig(
        labels=labels, text=text, epochs=3, batch_size=8, learning_rate=0.003, backbone="mlp",
        hidden=8, weights="none", accelerator="cpu", oracle=True, average=0.9, clip=1.0,
    )  # fmt: skip


def run_all(labels: str, out: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    collection = make_collection("images")
    text = str(Path(labels).parent / "names.csv")
    for title, method in registry().items():
        folder = Path(out) / f"{METHODS.index(title)}"
        train(config(labels, text), method(), folder, collection=collection)


def be(rank: int, port: int) -> None:
    """What torchrun tells a process."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test",
        "GROUP_RANK": "0",
    }  # fmt: skip


def one_of_two(rank: int, port: int, labels: str, out: str) -> None:
    be(rank, port)
    run_all(labels, out)


def in_memory(out: str) -> None:
    """A run without a folder that goes back to a snapshot."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    collection = make_collection("images")
    settings = replace(config(f"{out}/labels.csv", None), epochs=5)
    method = find("AdaGC")(patience=1, minimum_warm_up=0, force_trigger=0.6)
    run = train(settings, method, collection=collection)
    if ranks.rank() == 0:
        assert any(line.verdict is Verdict.RESTORE for line in run.history)
        torch.save(run.model().state_dict(), f"{out}/{ranks.world()}.pt")


def one_in_memory(rank: int, port: int, out: str) -> None:
    be(rank, port)
    in_memory(out)


def test_two_ranks_go_back_without_a_folder(tmp_path):
    make_labels(make_collection("images"), tmp_path / "labels.csv")
    in_memory(str(tmp_path))
    in_two(one_in_memory, str(tmp_path))
    one, two = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in (1, 2))
    assert compare("AdaGC", one, two)


def in_two(target, *arguments) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [SPAWN.Process(target=target, args=(rank, port, *arguments)) for rank in (0, 1)]
    for process in both:
        process.start()
    for process in both:
        process.join(300)
        assert process.exitcode == 0


def test_two_ranks_train_what_one_process_trains(tmp_path):
    """Every method of the registry: weights, state and files."""
    labels = str(make_labels(make_collection("images"), tmp_path / "labels.csv"))
    make_text(tmp_path / "names.csv")
    folders = tmp_path / "one", tmp_path / "two"
    run_all(labels, str(folders[0]))
    in_two(one_of_two, labels, str(folders[1]))
    for place, title in enumerate(METHODS):
        one, two = (checkpoint.load(folder / str(place) / "last.ckpt") for folder in folders)
        assert compare(title, one["network"], two["network"])
        assert compare(title, one["averaged"], two["averaged"])
        stateful = any(isinstance(value, Tensor) for value in one["method"].values())
        assert bool(compare(title, one["method"], two["method"])) == stateful
    names = [
        sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "events" not in str(p))
        for folder in folders
    ]
    assert names[0] == names[1]
    for place in range(len(METHODS)):
        lines = (folders[1] / str(place) / "history.jsonl").read_text().splitlines()
        assert len(lines) == 3  # the first rank alone writes


def compare(title: str, one: dict, two: dict) -> int:
    """How many tensors are the same but for rounding; labels and counts to the bit."""
    assert one.keys() == two.keys()
    count = 0
    for name, value in one.items():
        if isinstance(value, Tensor):
            count += 1
            if value.is_floating_point():
                where = f"{title}: {name}"
                torch.testing.assert_close(value, two[name], rtol=1e-3, atol=3e-4, msg=where)
            else:
                assert torch.equal(value, two[name]), f"{title}: {name}"
    return count


def test_the_command_under_torchrun(tmp_path):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
        sys.executable, "-m", "adagc", "train", "--data", "synthetic", "--scenes", "24",
        "--size", "16", "--scheme", "random", "--backbone", "mlp", "--weights", "none",
        "--accelerator", "cpu", "--absent", "skip", "--epochs", "2", "--method", "AN",
        "--out", str(tmp_path / "run"), "--json",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["scores"]["method"] == "AN"  # one object, from one rank
    assert (tmp_path / "run" / "report.html").exists()


def _spread(rank: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    torch.save(_all_of_it(), f"{out}/{rank}.pt")
    torch.distributed.destroy_process_group()


def _all_of_it() -> list[Tensor]:
    """A loss between rows of five, of a network run through `spread` and of a layer beside it."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5, 3, generator=generator)
    inner, outer = (torch.randn(3, 3, generator=generator, requires_grad=True) for _ in range(2))
    first, second = ranks.spread(lambda x: (x @ inner, (x @ inner).tanh()), rows)
    loss = (first @ outer @ second.T).logsumexp(dim=1).pow(2).sum()
    loss.backward()
    own = [nn.Parameter(inner.detach()), nn.Parameter(outer.detach())]
    for parameter, tensor in zip(own, (inner, outer), strict=True):
        parameter.grad = tensor.grad
    ranks.mean_gradients(own)
    alone = ranks.spread(lambda x: 2 * x, rows[:1])  # fewer rows than ranks
    share = rows[ranks.rank() :: ranks.world()]
    return [loss.detach(), first.detach(), second.detach(), alone,
            ranks.gather(share, 5), own[0].grad, own[1].grad]  # fmt: skip


def test_spread_gives_the_values_and_gradients_of_one_process(tmp_path):
    in_two(_spread, str(tmp_path))
    wanted = _all_of_it()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def _statistics(rank: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    network = nn.Sequential(nn.BatchNorm1d(2, momentum=1.0))
    ranks.spread(network, torch.tensor([[0.0, 1.0], [4.0, 5.0], [2.0, 1.0], [6.0, 5.0]]))
    own = network[0].running_mean.clone()
    ranks.mean_statistics(network)
    torch.save([own, network[0].running_mean, network[0].num_batches_tracked], f"{out}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_ranks_agree_on_the_statistics_of_batch_normalisation(tmp_path):
    in_two(_statistics, str(tmp_path))
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert one[0].tolist() == [1.0, 1.0]  # each saw its own rows
    assert two[0].tolist() == [5.0, 5.0]
    assert one[1].tolist() == two[1].tolist() == [3.0, 3.0]
    assert one[2] == two[2] == 1


def test_a_wrapped_network_is_the_network_in_all_but_its_calls():
    network = nn.Sequential(nn.Linear(2, 3))
    network.title = "inner"
    wrapped = ranks.Spread(network)
    assert wrapped.title == "inner"
    assert torch.equal(wrapped(torch.ones(2, 2)), network(torch.ones(2, 2)))
    wrapped.eval()
    assert not network.training
    with pytest.raises(AttributeError):
        wrapped.nothing  # noqa: B018


def train_one(labels: str, out: str) -> None:
    torch.set_num_threads(1)
    method = find("AdaGC")()
    train(config(labels, None), method, out, collection=make_collection("images"))


def one_of_two_by_srun(rank: int, port: int, labels: str, out: str) -> None:
    os.environ |= {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODEID": "0",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    train_one(labels, out)
    assert ranks.world() == 2


def test_two_tasks_of_srun_are_two_ranks(tmp_path):
    labels = str(make_labels(make_collection("images"), tmp_path / "labels.csv"))
    train_one(labels, str(tmp_path / "one"))
    in_two(one_of_two_by_srun, labels, str(tmp_path / "two"))
    one, two = (checkpoint.load(tmp_path / name / "last.ckpt") for name in ("one", "two"))
    assert compare("AdaGC", one["network"], two["network"])


def test_one_process_in_a_larger_allocation_is_one_process(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NTASKS", "4")  # of the batch script; no step was started by srun
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fabric = make_fabric(Settings(accelerator="cpu"))
    assert (fabric.world_size, ranks.world()) == (1, 1)


def test_tasks_that_are_not_spread_evenly_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "1")
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    with pytest.raises(UsageError, match="--ntasks-per-node"):
        make_fabric(Settings(accelerator="cpu"))

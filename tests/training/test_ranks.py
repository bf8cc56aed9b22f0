"""Many processes must be one: real gloo ranks against a single process on the same batches."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import adagc.training.network as network_module
from adagc import ranks
from adagc.datasets.collection import Collection
from adagc.errors import UsageError
from adagc.images.array import ArrayScenes
from adagc.methods import find, registry
from adagc.models import heads
from adagc.testing.processes import in_ranks
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.fabric import make_fabric
from adagc.training.loop import Settings
from adagc.training.runs import Run
from adagc.training.scoring import evaluate, predictions_of
from adagc.types import Verdict
from conftest import make_collection, make_labels, make_text

METHODS = [*registry()]
BATCH, EPOCHS = 8, 3


class Counted(ArrayScenes):
    """Counts the rows that are read."""

    read = 0

    def gather(self, rows):
        self.read += len(rows)
        return super().gather(rows)


def config(labels: str, text: str | None, **options) -> RunConfig:
    """A small residual network with batch normalisation, and nothing random in it."""
    settings = {
        "epochs": EPOCHS, "batch_size": BATCH, "learning_rate": 0.003, "backbone": "test_resnet",
        "weights": "none", "accelerator": "cpu", "average": 0.9, "clip": 1.0,
        "priors": "published",  # an estimate makes differences of its own out of rounding
    }  # fmt: skip
    return RunConfig(labels=labels, text=text, **{**settings, **options})


def collection_to_count() -> Collection:
    """Without test images, so that reading is training and validation."""
    whole = make_collection("images")
    array = whole.images.gather(np.arange(len(whole.images)))
    splits = {name: rows for name, rows in whole.splits.items() if name != "test"}
    return dataclasses.replace(
        whole, images=Counted(array, bands=whole.images.bands), splits=splits
    )


def run_all(labels: str, out: str) -> None:
    """Every method, in double precision: what ranks add up in another order must not show.

    In single precision Adam makes steps of full size out of gradients that are nothing but
    rounding, and nine of them later two right implementations are apart.
    """
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    single = network_module.build
    network_module.build = lambda *told, **options: single(*told, **options).double()
    warnings.simplefilter("ignore")
    text = str(Path(labels).parent / "names.csv")
    counts = {}
    for title, method in registry().items():
        collection = collection_to_count()
        learner = method()
        set_up = learner.setup

        def begin(*told, images=collection.images, set_up=set_up):
            images.read = 0  # statistics of bands were measured by then
            set_up(*told)

        learner.setup = begin
        folder = Path(out) / f"{METHODS.index(title)}"
        train(config(labels, text), learner, folder, collection=collection)
        counts[title] = collection.images.read
    (Path(out) / f"rows-{ranks.rank()}.json").write_text(json.dumps(counts))
    network_module.build = single
    torch.set_default_dtype(torch.float32)


def in_memory(out: str) -> None:
    """A run without a folder that goes back to a snapshot."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings = config(f"{out}/labels.csv", None, epochs=5, backbone="mlp", hidden=8)
    method = find("AdaGC")(patience=1, minimum_warm_up=0, force_trigger=0.6)
    run = train(settings, method, collection=make_collection("images"))
    if ranks.rank() == 0:
        assert any(line.verdict is Verdict.RESTORE for line in run.history)
        torch.save(run.model().state_dict(), f"{out}/{ranks.world()}.pt")


def means_with_gaps() -> None:
    """The mean of each band without missing values, of images that ranks share."""
    make_fabric(Settings(accelerator="cpu"))
    images = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)) + 3
    images[1, 0, :2] = torch.nan
    images[:, 2] = torch.nan
    share = ranks.Share(ranks.own(images), len(images))
    torch.testing.assert_close(ranks.mean_of_bands(share), ranks.mean_of_bands(images))
    assert not ranks.mean_of_bands(share).isnan().any()


def test_ranks_leave_missing_values_out_of_means():
    in_ranks(means_with_gaps, count=2)


def test_two_ranks_go_back_without_a_folder(tmp_path):
    make_labels(make_collection("images"), tmp_path / "labels.csv")
    for count in (1, 2):
        in_ranks(in_memory, str(tmp_path), count=count)
    one, two = (torch.load(tmp_path / f"{count}.pt", weights_only=True) for count in (1, 2))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=3e-4)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[str, Path]:
    """The label file, and the folder of the runs of one process."""
    folder = tmp_path_factory.mktemp("alone")
    labels = str(make_labels(make_collection("images"), folder / "labels.csv"))
    make_text(folder / "names.csv")
    in_ranks(run_all, labels, str(folder / "runs"), count=1)
    return labels, folder / "runs"


@pytest.mark.parametrize("world", [2, 3])
def test_many_ranks_train_what_one_process_trains(alone, world, tmp_path):
    """Every method of the registry: weights, statistics of batch normalisation, state and files."""
    labels, one = alone
    in_ranks(run_all, labels, str(tmp_path), count=world)
    for place, title in enumerate(METHODS):
        state, other = (
            checkpoint.load(folder / str(place) / "last.ckpt") for folder in (one, tmp_path)
        )
        assert any("running_var" in name for name in state["network"])
        assert compare(title, state["network"], other["network"])
        if state["averaged"] is not None:  # a method that deploys an average has no second one
            assert compare(title, state["averaged"], other["averaged"])
        stateful = any(isinstance(value, Tensor) for value in state["method"].values())
        assert bool(compare(title, state["method"], other["method"])) == stateful
        lines = (tmp_path / str(place) / "history.jsonl").read_text().splitlines()
        assert len(lines) == EPOCHS  # the first rank alone writes
    names = [
        sorted(
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if "events" not in str(path) and "rows-" not in path.name
        )
        for folder in (one, tmp_path)
    ]
    assert names[0] == names[1]
    check_reading(one, tmp_path, world)


def check_reading(one: Path, many: Path, world: int) -> None:
    """A rank reads its share of the images and the partners it mixes with, and no more."""
    whole = json.loads((one / "rows-0.json").read_text())
    shares = [json.loads((many / f"rows-{rank}.json").read_text()) for rank in range(world)]
    trained = EPOCHS * len(make_collection("images").splits["train"])
    for title in METHODS:
        read = [share[title] for share in shares]
        # Partners of at most all images, as far as they are not this rank's own already.
        mixes = title in ("AdaGC", "Dist-PU", "Completion")
        extra = trained if mixes or title == "Auto" else 0  # Auto mixes if it completes labels
        assert whole[title] <= sum(read) <= whole[title] + extra, title
        assert max(read) <= math.ceil((whole[title] + extra) / world) + EPOCHS * 6, title
        if mixes:
            assert sum(read) > whole[title], title  # the test would see mixing within a share


def compare(title: str, one: dict, two: dict) -> int:
    """How many tensors are the same but for rounding; labels and counts to the bit."""
    assert one.keys() == two.keys()
    count = 0
    for name, value in one.items():
        if isinstance(value, Tensor):
            count += 1
            if value.is_floating_point():
                where = f"{title}: {name}"
                torch.testing.assert_close(value, two[name], rtol=1e-6, atol=1e-7, msg=where)
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


def _spread(out: str) -> None:
    torch.distributed.init_process_group("gloo")
    torch.save(_all_of_it(), f"{out}/{ranks.rank()}.pt")
    torch.distributed.destroy_process_group()


def _all_of_it() -> list[Tensor]:
    """A loss between rows of five, of a network run through `spread` and of a layer beside it."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5, 3, generator=generator)
    inner, outer, spare = (nn.Parameter(torch.randn(3, 3, generator=generator)) for _ in range(3))
    exchange = ranks.GradientExchange([inner, outer, spare], bucket=4 * 9)  # one per bucket
    for _ in range(2):  # a second pass finds an exchange that starts anew
        for parameter in (inner, outer):
            parameter.grad = None
        first, second = ranks.spread(lambda x: (x @ inner, (x @ inner).tanh()), rows)
        loss = (first @ outer @ second.T).logsumexp(dim=1).pow(2).sum()
        loss.backward()
        exchange.finish()
    assert spare.grad is None  # untouched by the loss
    alone = ranks.spread(lambda x: 2 * x, rows[:1])  # fewer rows than ranks
    return [loss.detach(), first.detach(), second.detach(), alone,
            ranks.gather(ranks.own(rows), 5), inner.grad, outer.grad]  # fmt: skip


def test_spread_gives_the_values_and_gradients_of_one_process(tmp_path):
    in_ranks(_spread, str(tmp_path))
    wanted = _all_of_it()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


class Activated(nn.BatchNorm1d):
    """A layer of somebody else's that does more than normalise, as timm has them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


def _normalise(out: str) -> None:
    torch.distributed.init_process_group("gloo")
    torch.save(_statistics(), f"{out}/{ranks.rank()}.pt")
    torch.distributed.destroy_process_group()


def _statistics() -> list[Tensor]:
    """Two layers of batch normalisation with a loss that looks across rows, in double precision."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 3, 4, generator=generator, dtype=torch.float64) * 3 + 100
    first, second = nn.BatchNorm1d(3).double(), Activated(3, affine=False).double()
    exchange = ranks.GradientExchange(first.parameters())
    network = nn.Sequential(first, nn.Conv1d(3, 3, 1).double(), second)
    with torch.no_grad():
        network[1].weight.copy_(torch.randn(3, 3, 1, generator=generator))
        network[1].bias.zero_()
    loss = ranks.spread(network, rows).pow(2).cumsum(dim=0).sin().sum()
    loss.backward()
    exchange.finish()
    found = [loss.detach(), first.weight.grad, first.bias.grad, first.num_batches_tracked]
    found += [layer.running_mean for layer in (first, second)]
    found += [layer.running_var for layer in (first, second)]
    network.eval()
    return [*found, ranks.spread(network, rows).detach()]


def test_batch_normalisation_sees_the_whole_batch(tmp_path):
    in_ranks(_normalise, str(tmp_path), count=3)
    wanted = _statistics()
    for rank in range(3):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def _overlap(out: str) -> None:
    torch.distributed.init_process_group("gloo")
    layers = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
    exchange = ranks.GradientExchange(layers.parameters(), bucket=64 * 64 * 4)
    sent: list[int] = []
    layers[0].register_full_backward_pre_hook(lambda *_: sent.append(len(exchange._sent)))
    ranks.spread(layers, torch.ones(4, 64)).sum().backward()
    exchange.finish()
    Path(f"{out}/{ranks.rank()}.json").write_text(json.dumps(sent))
    torch.distributed.destroy_process_group()


def test_gradients_travel_while_the_backward_pass_is_under_way(tmp_path):
    in_ranks(_overlap, str(tmp_path))
    for rank in (0, 1):  # three of four buckets were on their way before the first layer's turn
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == [3]


def _drop(labels: str, out: str) -> None:
    masks: list[Tensor] = []
    real = heads.drop

    def spy(features: Tensor, share: float, training: bool) -> Tensor:
        if training and len(masks) < 6:
            masks.append(real(torch.ones_like(features), share, training) > 0)
        return real(features, share, training)

    heads.drop = spy
    settings = config(labels, None, dropout=0.5, epochs=1)
    train(settings, find("AN")(), f"{out}/run", collection=make_collection("images"))
    torch.save(masks, f"{out}/{ranks.rank()}.pt")


def test_ranks_drop_different_units(tmp_path):
    labels = str(make_labels(make_collection("images"), tmp_path / "labels.csv"))
    in_ranks(_drop, labels, str(tmp_path))
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert len(one) == len(two) > 0
    assert not any(torch.equal(mine, theirs) for mine, theirs in zip(one, two, strict=True))


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
    """With plain layers, in which single precision is enough to compare."""
    torch.set_num_threads(1)
    settings = config(labels, None, backbone="mlp", hidden=8)
    train(settings, find("AdaGC")(), out, collection=make_collection("images"))


def srun(rank: int, count: int, port: int) -> dict[str, str]:
    """What srun sets in the environment of a task."""
    return {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS": f"{count}", "SLURM_NTASKS_PER_NODE": f"{count}",
        "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": f"{count}", "SLURM_STEP_NUM_NODES": "1",
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }  # fmt: skip


def train_one_of_two(labels: str, out: str) -> None:
    train_one(labels, out)
    assert ranks.world() == 2


def test_two_tasks_of_srun_are_two_ranks(tmp_path):
    labels = str(make_labels(make_collection("images"), tmp_path / "labels.csv"))
    train_one(labels, str(tmp_path / "one"))
    in_ranks(train_one_of_two, labels, str(tmp_path / "two"), environment=srun)
    one, two = (checkpoint.load(tmp_path / name / "last.ckpt") for name in ("one", "two"))
    for name, value in one["network"].items():
        torch.testing.assert_close(value, two["network"][name], rtol=1e-3, atol=3e-4)


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


def train_and_count(labels: str, out: str) -> None:
    """Once with a folder and once without; the rows that are read after training are counted."""
    scores = []
    for place in (f"{out}/run", None):
        whole = make_collection("images")
        array = whole.images.gather(np.arange(len(whole.images)))
        images = Counted(array, bands=whole.images.bands)
        learner = find("AdaGC")(patience=1, minimum_warm_up=0)
        last: list[int] = []
        status = learner.status

        def note(status=status, images=images, last=last):
            last.append(images.read)  # the last thing that the loop asks of an epoch
            return status()

        learner.status = note
        run = train(
            config(labels, None),
            learner,
            place,
            collection=dataclasses.replace(whole, images=images),
        )
        assert run.scores is not None
        networks = run.scores.networks.items()
        scores.append({name: tested.epochs["last"].scores.summary() for name, tested in networks})
        scores.append({"tested": images.read - last[-1]})
    Path(f"{out}/{ranks.rank()}.json").write_text(json.dumps(scores))


def test_all_ranks_share_the_test_also_of_a_run_without_a_folder(tmp_path):
    labels = str(make_labels(make_collection("images"), tmp_path / "labels.csv"))
    for world in (1, 2):
        (tmp_path / str(world)).mkdir()
        in_ranks(train_and_count, labels, str(tmp_path / str(world)), count=world)
    alone = json.loads((tmp_path / "1" / "0.json").read_text())
    both = [json.loads((tmp_path / "2" / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert both[0] == both[1]  # both know all scores
    assert [part["tested"] for part in alone if "tested" in part] == [
        2 * part["tested"] for part in both[0] if "tested" in part
    ]
    run = Run.open(tmp_path / "2" / "run")
    saved = predictions_of(run)
    evaluate(run, collection=make_collection("images"))  # by this process alone
    for name, values in predictions_of(run).items():
        np.testing.assert_allclose(values, saved[name], atol=1e-6)

"""What a network deploys is what its head says, wherever a probability is used."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from adagc import inference, ranks
from adagc.errors import AdagcError, UsageError
from adagc.methods.state import AveragedNetwork
from adagc.metrics import score
from adagc.models import HEADS, HeadSpec, LinearHead, load_model, register_head, save_model
from adagc.report import write_report
from adagc.testing.processes import compare_states, in_ranks
from adagc.testing.tiny import make_classifier, make_collection, make_labels
from adagc.training import checkpoint
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.scoring import predictions_of
from presence import Presence, by_hand


def config(labels: str) -> RunConfig:
    return RunConfig(
        labels=labels, epochs=3, batch_size=8, learning_rate=0.01, backbone="mlp", hidden=8,
        weights="none", accelerator="cpu", average=0.5, oracle=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    collection = make_collection("images")
    folder = tmp_path_factory.mktemp("presence")
    labels = make_labels(collection, folder / "labels.csv")
    return train(config(str(labels)), Presence(), folder / "run", collection=collection)


def expected(run, name: str, split: str) -> np.ndarray:
    collection = make_collection("images")
    images = collection.images.gather(collection.splits[split]).astype(np.float64)
    return by_hand(load_file(run.path(f"weights/{name}.safetensors")), images)


@pytest.mark.parametrize("name", ["network-last", "network-best", "averaged-last"])
def test_predictions_and_scores_follow_the_formula_of_the_head(run, name):
    wanted = expected(run, name, "test")
    saved = predictions_of(run)[name]
    np.testing.assert_allclose(saved, wanted, atol=2e-6)
    network, _, which = name.partition("-")
    scores = json.loads(run.path("scores.json").read_text())["networks"][network][which]
    truth = make_collection("images").truth[make_collection("images").splits["test"]]
    assert scores["mean_f1"] == pytest.approx(score(truth, wanted).mean_f1)
    model = load_model(run.folder)
    assert model.head.__class__ is HEADS["presence"]
    images = torch.from_numpy(make_collection("images").images.gather(np.arange(40, 64))).float()
    plain = model(images).sigmoid().detach().numpy()
    assert np.abs(plain - wanted).max() > 0.1  # a sigmoid of the logits is something else


def test_validation_follows_it_too(run):
    history = [json.loads(line) for line in run.path("history.jsonl").read_text().splitlines()]
    for name in ("network", "averaged"):
        wanted = expected(run, f"{name}-last", "val")
        truth = make_collection("images").truth[24:40]
        noted = history[-1]["oracle"]["validation"][name]
        assert noted["mean_f1"] == pytest.approx(score(truth, wanted).mean_f1)


def test_the_gallery_shows_it(run):
    page = write_report(run, out=run.folder / "page.html", collection=make_collection("images"))
    wanted = expected(run, "network-last", "test")
    chances = {f"{100 * p:.0f} %" for p in wanted[wanted >= 0.5]}
    shown = set(re.findall(r"(?:right|wrong), (\d+ %)", page.read_text()))
    assert shown & chances


def test_copies_and_averages_keep_it(run):
    model = load_model(run.folder)
    images = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(1)) * 255
    wanted = model.probabilities(images)
    assert torch.equal(copy.deepcopy(model).probabilities(images), wanted)
    averaged = AveragedNetwork(model, 0.9)
    assert torch.equal(averaged.probabilities(images), wanted)
    assert torch.equal(inference.probabilities(averaged, images), wanted)


def test_a_plain_module_deploys_a_sigmoid():
    layer = nn.Linear(2, 3)
    rows = torch.randn(4, 2)
    assert torch.equal(inference.probabilities(layer, rows), layer(rows).sigmoid())
    averaged = AveragedNetwork(layer, 0.9)
    assert torch.equal(averaged.probabilities(rows), layer(rows).sigmoid())


@pytest.mark.parametrize("kind", ["linear", "class-map", "label-wise", "bottleneck"])
def test_our_own_heads_deploy_a_sigmoid_in_single_precision(kind):
    network = make_classifier((6, 2, 2), head=HeadSpec(kind)).eval()
    images = torch.rand(5, 6, 2, 2)
    assert torch.equal(network.probabilities(images), network(images).float().sigmoid())
    halved = network.to(torch.bfloat16)
    assert halved.probabilities(images.bfloat16()).dtype == torch.float32


def test_a_kind_is_registered_once_and_by_import():
    with pytest.raises(UsageError, match="already a head of kind 'linear'"):
        register_head("linear")(LinearHead)
    with pytest.raises(AdagcError, match=r"no head of kind 'absence' is known .*import"):
        HeadSpec("absence")


def test_loading_without_the_class_is_one_line(run):
    code = f"import adagc; adagc.load_model({str(run.folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "no head of kind 'presence' is known" in last
    assert "import the module that registers it" in last


def train_as_rank(labels: str, out: str) -> None:
    train(config(labels), Presence(), out, collection=make_collection("images"))


def test_two_ranks_share_its_passes(run, tmp_path):
    in_ranks(train_as_rank, str(run.folder.parent / "labels.csv"), str(tmp_path / "two"))
    one, two = (checkpoint.load(place / "last.ckpt") for place in (run.folder, tmp_path / "two"))
    assert compare_states("Presence", one["network"], two["network"])
    two_last = load_file(tmp_path / "two" / "predictions.safetensors")["network-last"]
    np.testing.assert_allclose(two_last, predictions_of(run)["network-last"], atol=1e-3)


def count_rows(out: str) -> None:
    torch.distributed.init_process_group("gloo")
    model = load_model(Path(out))
    seen: list[int] = []
    model.head.register_forward_pre_hook(lambda _module, inputs: seen.append(len(inputs[0])))
    model.head.probabilities = lambda features: model.head(features).exp()
    values = ranks.Spread(model).probabilities(torch.rand(5, 6, generator=_seeded()))
    torch.save([torch.tensor(seen), values], f"{out}/{ranks.rank()}.pt")
    torch.distributed.destroy_process_group()


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_rank_runs_its_share_and_gets_all_rows(tmp_path):
    network = make_classifier().eval()
    save_model(tmp_path, network)
    in_ranks(count_rows, str(tmp_path))
    wanted = network(torch.rand(5, 6, generator=_seeded())).exp()
    for rank, share in enumerate((3, 2)):
        seen, values = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert seen.tolist() == [share]
        torch.testing.assert_close(values, wanted)

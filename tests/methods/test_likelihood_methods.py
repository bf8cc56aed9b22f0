"""Random label, Area label, Random cover and Completion: their losses, stages and networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adagc import losses
from adagc.errors import UnsuitedError
from adagc.methods import find
from adagc.methods.area_label import AreaLabel
from adagc.methods.completion import Completion
from adagc.methods.cover_label import CoverLabel
from adagc.methods.random_cover import RandomCover
from adagc.methods.random_label import RandomLabel
from adagc.methods.state import Mixup
from adagc.metrics import score
from adagc.priors import estimate
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.types import NetworkRole, Verdict
from conftest import (
    FixedLogits,
    make_batch,
    make_classifier,
    make_collection,
    make_labels,
    make_progress,
    make_task,
)

OBSERVED = torch.tensor([[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.int8)
Z = torch.tensor(
    [[0.5, -1.0, 2.0, 0.1], [-0.3, 0.8, -2.0, 1.0], [0.0, 0.2, 1.5, -0.4], [1.0, 1.0, -1.0, 0.0]]
)
SCORES = score(np.eye(4, dtype=bool), np.eye(4), absent="skip")


def step(method, network=None):
    """The loss of a batch of all four images, on fixed logits."""
    task = make_task(OBSERVED)
    network = FixedLogits(Z) if network is None else network
    method.setup(network, task)
    return method.loss(network, make_batch(torch.zeros(4, 1), task), make_progress())


# -- annotators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [RandomLabel, RandomCover])
def test_a_random_draw_is_explained(cls):
    wanted = -losses.random_likelihood(Z, OBSERVED).mean()
    assert step(cls()).total.item() == pytest.approx(wanted.item(), abs=1e-6)


def test_areas_are_explained():
    maps = torch.randn(4, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    network = FixedLogits(Z)
    network.class_maps = lambda images: maps[: len(images)]
    wanted = -losses.area_likelihood(maps, OBSERVED, 5.0).mean()
    assert step(AreaLabel(looks=5.0), network).total.item() == pytest.approx(wanted.item())


def test_either_rule_is_explained_on_the_same_maps():
    maps = torch.randn(4, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    network = FixedLogits(Z)
    network.class_maps = lambda images: maps[: len(images)]
    by_area = losses.area_likelihood(maps, OBSERVED, 5.0)
    by_chance = losses.random_likelihood(losses.presence_logits(maps, 5.0), OBSERVED)
    wanted = -(by_area.mean() + by_chance.mean()) / 2
    assert step(CoverLabel(looks=5.0), network).total.item() == pytest.approx(wanted.item())


@pytest.mark.parametrize(
    ("cls", "kind"), [(AreaLabel, "areas"), (RandomCover, "areas"), (CoverLabel, "areas")]
)
def test_areas_need_a_head_in_which_classes_compete(cls, kind):
    head = cls(looks=4.0).head()
    assert (head.kind, head.looks) == (kind, 4.0)
    network = make_classifier((6, 3, 3), head=head)
    x = torch.rand(2, 6, 3, 3)
    maps = network.class_maps(x)
    assert maps.shape == (2, 4, 3, 3)
    a = maps.flatten(2).softmax(dim=1)
    n = -4.0 * torch.log(1 - a).mean(dim=2)
    torch.testing.assert_close(network.probabilities(x), 1 - torch.exp(-n), rtol=1e-4, atol=1e-5)


def test_small_objects_count_with_a_soft_maximum():
    network = make_classifier((6, 3, 3), head=RandomLabel(pooling="any").head())
    x = torch.rand(2, 6, 3, 3)
    wanted = network.class_maps(x).flatten(2).exp().mean(dim=2).log()
    torch.testing.assert_close(network(x), wanted)


@pytest.mark.parametrize("method", ["Area label", "Random cover", "Cover label"])
def test_pooled_embeddings_are_refused_with_the_remedy(method, tmp_path):
    collection = make_collection()
    labels = make_labels(collection, tmp_path / "labels.csv")
    config = RunConfig(labels=str(labels), epochs=1, backbone="mlp", weights="none")
    with pytest.raises(UnsuitedError, match="give images or stored feature maps"):
        train(config, find(method)(), tmp_path / "run", collection=collection)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["RM", "random label", "AL", "area-label", "U0", "Random cover"])
def test_they_are_known_by_what_they_assume_and_by_their_symbols(name):
    assert find(name).family == "Likelihood methods"


# -- completion ----------------------------------------------------------------------------------


def made(*, epochs: int = 20, rows: int = 40, **options) -> tuple[Completion, torch.nn.Module]:
    """The method and its network, on images whose labels follow from their rows."""
    observed = torch.eye(4, dtype=torch.int8)[torch.arange(rows) % 4]
    method = Completion(**options)
    network = FixedLogits(torch.zeros(rows, 4))
    method.setup(network, make_task(observed, epochs=epochs))
    return method, network


def live(method: Completion, sharpness: list[float], *, epochs: int = 20) -> list[Verdict]:
    """The verdicts of epochs in which the validation predictions are so sharp, right or wrong."""
    generator = np.random.default_rng(0)
    truth = np.eye(4)[np.arange(60) % 4]
    verdicts = []
    for epoch, sharp in enumerate(sharpness, 1):
        progress = make_progress(epoch, epochs=epochs)
        if method.reviews(progress):
            scores = torch.rand(len(method.observed), 4, generator=torch.Generator().manual_seed(0))
            method.review(scores, progress)
        if method.wants_validation(progress):
            predictions = 1 / (1 + np.exp(-sharp * (truth - 0.5) - generator.normal(size=(60, 4))))
            method.see_validation(torch.from_numpy(predictions), torch.from_numpy(truth), progress)
        verdicts.append(method.end_epoch(SCORES, progress))
    return verdicts


def test_labels_are_completed_some_epochs_after_those_that_explain_them_best():
    method, _ = made(patience=3)
    verdicts = live(method, [1, 2, 6, 3, 2, 1, 1, 1])
    assert method.best_epoch == 3
    assert method.completed_after == 6
    assert [v is Verdict.RESTART for v in verdicts] == [False] * 5 + [True, False, False]


def test_it_does_not_wait_for_ever():
    method, _ = made(patience=50, force=0.5)
    live(method, [float(epoch) for epoch in range(1, 13)])
    assert method.completed_after == 10


def test_frequencies_are_those_of_the_best_epoch():
    method, _ = made(patience=2)
    generator = np.random.default_rng(3)
    seen = np.eye(4)[np.arange(60) % 4]
    sharp = 1 / (1 + np.exp(-6 * (seen - 0.5)))
    blunt = generator.uniform(size=(60, 4))
    for epoch, predictions in enumerate([sharp, blunt, blunt], 1):
        progress = make_progress(epoch, epochs=20)
        if epoch == 3:  # what was kept goes through a checkpoint
            again, _ = made(patience=2)
            again.set_extra_state(method.get_extra_state())
            method = again
        if method.reviews(progress):
            method.review(torch.rand(len(method.observed), 4), progress)
        method.see_validation(torch.from_numpy(predictions), torch.from_numpy(seen), progress)
        verdict = method.end_epoch(SCORES, progress)
    assert verdict is Verdict.RESTART
    assert method.shares == pytest.approx(estimate(sharp, seen).frequencies.tolist())


def test_the_highest_scores_complete_each_class_to_its_share():
    method, _ = made(rows=40)
    method.shares = (0.5, 0.25, 0.0, 1.0)
    predicted = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    method.observed[5, 3] = -1  # seen to be absent, whatever the scores say
    method._complete(predicted)
    completed = method.estimates() if method.completed_after else method.completed.values
    for c, count in enumerate((20, 10, 0, 40)):
        top = set(predicted[:, c].topk(count).indices.tolist())
        seen = set((method.observed[:, c] > 0).nonzero().flatten().tolist())
        absent = set((method.observed[:, c] < 0).nonzero().flatten().tolist())
        assert set(completed[:, c].nonzero().flatten().tolist()) == (top | seen) - absent
    assert set(completed.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_the_second_stage_learns_completed_labels_on_mixed_images(weight):
    task = make_task(OBSERVED)
    network = FixedLogits(Z)
    method = Completion(weight=weight)
    method.setup(network, task)
    method.completed_after = 1
    targets = torch.rand(4, 4, generator=torch.Generator().manual_seed(2))
    method.completed.write(torch.arange(4), targets)
    batch = make_batch(torch.zeros(4, 1), task, seed=5)
    found = method.loss(network, batch, make_progress(2))
    again = make_batch(torch.zeros(4, 1), task, seed=5)
    mix = Mixup.draw(4, 1.0, again.generator)
    phi = mix.share[0]
    mixed = phi * targets + (1 - phi) * targets[mix.partner]
    wanted = losses.binary_cross_entropy(Z, mixed).sum(dim=1).mean()
    explained = phi * losses.random_likelihood(Z, OBSERVED) + (1 - phi) * losses.random_likelihood(
        Z, OBSERVED[mix.partner]
    )
    wanted = wanted - weight * explained.mean()
    assert found.total.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_the_average_is_deployed_and_the_second_stage_starts_from_it():
    method, network = made()
    assert method.deployed(network) is method.average.network
    assert method.chosen(network) is method.average.network
    roles = {name: one.role for name, one in method.reported(network).items()}
    assert roles["network"] is NetworkRole.DEPLOYED
    with torch.no_grad():
        network.logits.fill_(2.0)
    method.after_step(network)
    method.restarted(network, make_progress(5))
    assert method.average.network.logits.eq(2.0).all()
    assert int(method.average.steps) == 0


def test_a_whole_run_has_both_stages_and_completes_labels(tmp_path):
    collection = make_collection(count=64)
    config = RunConfig(
        scheme="random", epochs=8, batch_size=8, learning_rate=0.01, backbone="mlp", hidden=8,
        weights="none", accelerator="cpu",
    )  # fmt: skip
    run = train(config, Completion(patience=2), tmp_path / "run", collection=collection)
    stages = [line.status["stage"] for line in run.history]
    assert stages[0] == "explaining"
    assert stages[-1] == "completing"
    last = run.history[-1]
    assert last.status["completed_after"] == stages.index("completing") + 1
    assert "completion" in last.losses
    assert last.oracle is not None


def test_annotators_are_chosen_by_name():
    for name, kind in (
        ("random", "linear"),
        ("random-any", "any-position"),
        ("random-cover", "areas"),
        ("area", "areas"),
        ("cover", "areas"),
    ):
        assert Completion(annotator=name).head().kind == kind

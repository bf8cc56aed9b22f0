"""Auto: several annotators share a network until held-out labels choose one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adagc import losses
from adagc.methods.auto import CANDIDATES, AllHeads, Auto
from adagc.methods.completion import ANNOTATORS
from adagc.models import load_model
from adagc.models.positions import AnnotatorsHead
from adagc.priors import estimate
from adagc.testing import method_checks
from adagc.training.experiment import train
from adagc.types import Verdict
from conftest import make_batch, make_classifier, make_progress, make_task
from tiny import write_scenario

OBSERVED = torch.tensor([[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0]], dtype=torch.int8)
IMAGES = torch.rand(3, 6, 2, 2, generator=torch.Generator().manual_seed(0))
# Fixed logits, on which numbers are checked, have no last layers: that is done for each annotator.
CHECKS = {name: one for name, one in method_checks() if "stays finite" not in name}


class OnMaps(Auto):
    """Auto with all of its annotators, on stored maps too."""

    title = "Auto on maps"
    needs = frozenset({"feature_map"})

    def __init__(self, *, patience: int = 1, momentum: float | None = None, force: float = 0.6):
        super().__init__(patience=patience, momentum=momentum, force=force)
        self.candidates = CANDIDATES

    def check(self, task):
        super().check(task)
        self.candidates = CANDIDATES


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_with_all_annotators_it_passes_every_check(check):
    check(OnMaps)


def made() -> tuple[OnMaps, torch.nn.Module]:
    method = OnMaps()
    network = make_classifier((6, 2, 2), head=method.head())
    method.setup(network, make_task(OBSERVED))
    return method, network


def test_every_annotator_explains_the_labels_with_a_last_layer_of_its_own():
    method, network = made()
    found = method.loss(network, make_batch(IMAGES, make_task(OBSERVED)), make_progress())
    features = network.feature_map(IMAGES)
    head = network.head
    wanted = {
        "random": losses.random_likelihood(head.random(features.mean(dim=(2, 3))), OBSERVED),
        "cover": losses.random_likelihood(head.cover(features), OBSERVED),
        "area": losses.area_likelihood(head.area.maps(features), OBSERVED, 9.0),
    }
    for name, value in wanted.items():
        torch.testing.assert_close(found.parts[name], -value.mean())
    torch.testing.assert_close(found.total, -sum(value.mean() for value in wanted.values()))


def test_the_probe_shows_all_of_them_side_by_side():
    method, network = made()
    shown = method.probe(network)
    assert isinstance(shown, AllHeads)
    values = shown.probabilities(IMAGES)
    assert values.shape == (3, 12)
    for number, name in enumerate(AnnotatorsHead.names):
        method.average.network.head.choice.fill_(number)
        alone = method.average.network.probabilities(IMAGES)
        torch.testing.assert_close(values[:, 4 * number : 4 * number + 4], alone)
        assert name == CANDIDATES[number]


@pytest.mark.parametrize("best", range(3))
def test_the_one_under_which_held_out_labels_are_most_probable_is_used(best):
    method, network = made()
    seen = np.eye(4)[np.arange(80) % 4]
    rng = np.random.default_rng(0)
    parts = [rng.uniform(size=seen.shape) for _ in CANDIDATES]
    parts[best] = 1 / (1 + np.exp(-4 * (seen - 0.5) - rng.normal(size=seen.shape)))
    method.see_validation(
        torch.from_numpy(np.concatenate(parts, axis=1)), torch.from_numpy(seen), make_progress(3)
    )
    assert method.annotator == CANDIDATES[best]
    assert method.best_epoch == 3
    assert method.completes == (best == 0)
    assert method.shares == pytest.approx(estimate(parts[best], seen).frequencies.tolist())
    told = method.status()["explained_by"]
    assert max(told, key=told.__getitem__) == CANDIDATES[best]
    method.after_step(network)
    for one in (network, method.average.network):
        assert int(one.head.choice) == best


def test_without_positions_there_is_one_annotator_and_a_plain_last_layer():
    method = Auto()
    network = make_classifier((6,), head=method.head())
    method.setup(network, make_task(OBSERVED))
    assert method.candidates == ("random",)
    assert method.head().kind == "linear"
    assert method.probe(network) is method.watched(network)


def test_a_run_on_images_tries_all_and_deploys_the_one_it_chose(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", scenes=60, epochs=5)
    run = train(scenario.config(0), Auto(patience=1), tmp_path / "run")
    first, last = run.history[0], run.history[-1]
    assert set(first.losses) == {"total", "random", "cover", "area"}
    chosen = last.status["annotator"]
    stage = {"completion"} if chosen == "random" else set()
    assert set(last.losses) == {"total", "likelihood", *stage}
    assert set(last.status["explained_by"]) == set(CANDIDATES)
    model = load_model(run.folder)
    assert model.spec.head.kind == "annotators"
    assert AnnotatorsHead.names[int(model.head.choice)] == chosen


def test_any_class_present_is_assumed_unless_another_annotator_is_clearly_better():
    """Within a tie the simplest assumption stands, because labels can then be completed."""
    method, _ = made()
    method.explained_by = {"random": -1.80, "cover": -1.78, "area": -1.9}
    assert max(CANDIDATES, key=method._merit) == "random"
    method.explained_by["cover"] = -1.76
    assert max(CANDIDATES, key=method._merit) == "cover"


def test_without_completion_the_chosen_annotator_goes_on_alone():
    method, network = made()
    method.annotator, method.explained = "area", ANNOTATORS["area"]()
    progress = make_progress(2, epochs=10)
    method.best_epoch = 1
    method.review(torch.rand(3, 4), progress)
    assert method.end_epoch(None, progress) is Verdict.CONTINUE
    method.after_step(network)
    found = method.loss(network, make_batch(IMAGES, make_task(OBSERVED)), make_progress(3))
    maps = network.head.area.maps(network.feature_map(IMAGES))
    wanted = -losses.area_likelihood(maps, OBSERVED, 9.0).mean()
    torch.testing.assert_close(found.total, wanted)
    assert method.estimates() is None
    assert method.status()["stage"] == "explaining"


def test_the_report_says_whether_labels_were_completed():
    told = {"best_epoch": 3, "completed_after": 8, "annotator": "cover"}
    without = Auto.story({**told, "stage": "explaining"}, went_back=False)
    assert without.sentence == "Labels were not completed: cover explains them best"
    assert without.second_stage_after is None
    completed = Auto.story({**told, "stage": "completing"}, went_back=False)
    assert completed.sentence.startswith("Labels were completed after epoch 8")
    assert completed.second_stage_after == 8

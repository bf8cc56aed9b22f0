"""Auto: which epoch of which stage is kept, and what the network looks at."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch

from adagc.methods.auto import TIE, Auto
from adagc.metrics.noisy import auc
from adagc.models import load_model
from adagc.training.experiment import train
from adagc.types import NetworkRole, Verdict
from conftest import FixedLogits, make_progress, make_task
from tiny import write_scenario

SEEN = np.eye(4)[np.arange(80) % 4]


def made(**options) -> tuple[Auto, torch.nn.Module]:
    observed = torch.eye(4, dtype=torch.int8)[torch.arange(40) % 4]
    method = Auto(**options)
    network = FixedLogits(torch.zeros(40, 4))
    method.setup(network, make_task(observed, epochs=20))
    return method, network


def predictions(sharp: float) -> np.ndarray:
    """Predictions for the validation images that rank them the better the sharper they are."""
    noise = np.random.default_rng(0).normal(size=SEEN.shape)
    return 1 / (1 + np.exp(-sharp * (SEEN - 0.5) - noise))


def live(method: Auto, network: torch.nn.Module, sharpness: list[float]) -> list[Verdict]:
    """The verdicts of epochs with such validation predictions; weights are the epoch's number."""
    verdicts = []
    for epoch, sharp in enumerate(sharpness, 1):
        progress = make_progress(epoch, epochs=20)
        with torch.no_grad():
            method.average.network.logits.fill_(float(epoch))
        if method.reviews(progress):
            method.review(torch.rand(40, 4), progress)
        assert method.wants_validation(progress)
        shown = torch.from_numpy(predictions(sharp))
        method.see_validation(shown, torch.from_numpy(SEEN), progress)
        verdicts.append(method.end_epoch(None, progress))
        if verdicts[-1] is Verdict.RESTART:
            method.restarted(network, progress)
    return verdicts


def kept(method: Auto, network: torch.nn.Module) -> float:
    return method.deployed(network).logits[0, 0].item()


def means(sharpness: list[float]) -> list[float]:
    """Mean AUC of each epoch and the two before it."""
    values = [auc(SEEN, predictions(sharp)) for sharp in sharpness]
    return [float(np.mean(values[max(0, i - 2) : i + 1])) for i in range(len(values))]


def test_the_epoch_that_ranks_observed_labels_best_is_deployed():
    method, network = made(patience=10)
    live(method, network, [1, 3, 5, 4, 2])
    assert kept(method, network) == 4.0
    assert method.status()["kept_epoch"] == 4
    assert method.status()["kept_auc"] == pytest.approx(max(means([1, 3, 5, 4, 2])), abs=1e-4)


@pytest.mark.parametrize(("later", "stage", "epoch"), [(9, "completing", 5), (2, "explaining", 4)])
def test_the_second_stage_counts_only_if_it_ranks_better(later, stage, epoch):
    method, network = made(patience=2)
    verdicts = live(method, network, [3, 5, 4, 4, later, later])
    assert verdicts.index(Verdict.RESTART) == 3
    assert method.status()["stage"] == "completing"
    assert method.status()["kept_stage"] == stage
    assert kept(method, network) == epoch


def test_of_stages_that_rank_alike_the_second_is_kept():
    for lost, stage in ((0.9 * TIE, "completing"), (1.1 * TIE, "explaining")):
        method, network = made(patience=2)
        live(method, network, [3, 5, 4, 4])
        method.kept_value = (
            auc(SEEN, predictions(5)) + lost
        )  # the first stage ranked that much better
        shown = torch.from_numpy(predictions(5))
        method.see_validation(shown, torch.from_numpy(SEEN), make_progress(5, epochs=20))
        assert method.status()["kept_stage"] == stage


def test_the_second_stage_begins_with_the_average_and_its_ranking_not_with_the_kept_one():
    method, network = made(patience=2)
    live(method, network, [3, 5, 4, 4])
    assert method.completed_after == 4
    assert method.chosen(network) is method.average.network
    assert method.reviewed(network) is method.average.network
    assert method.deployed(network) is not method.average.network


def test_one_lucky_epoch_is_not_enough():
    """Of three epochs in a row the mean counts, and a stage begins anew."""
    method, network = made(patience=30)
    live(method, network, [3, 3, 3, 9, 3, 3, 6, 6, 6])
    assert kept(method, network) == 1 + int(np.argmax(means([3, 3, 3, 9, 3, 3, 6, 6, 6]))) == 9
    method.restarted(network, make_progress(9, epochs=20))
    assert method.recent == ()


def test_without_labels_to_rank_by_the_last_epoch_is_kept():
    method, network = made(patience=10)
    for epoch in (1, 2, 3):
        with torch.no_grad():
            method.average.network.logits.fill_(float(epoch))
        seen = torch.zeros(5, 4, dtype=torch.int8)
        seen[:, 0] = 1  # no image without this label
        method.see_validation(torch.rand(5, 4), seen, make_progress(epoch, epochs=20))
    assert kept(method, network) == 3.0
    assert method.status()["kept_auc"] is None


def test_the_trained_network_is_reported_beside_the_kept_one():
    method, network = made()
    roles = {name: one.role for name, one in method.reported(network).items()}
    assert roles == {"network": NetworkRole.DEPLOYED, "student": NetworkRole.TRAINED}


def test_classes_compete_for_positions_where_there_are_positions():
    observed = torch.eye(4, dtype=torch.int8)
    for positions, annotator, kind in (
        (16, "cover", "areas"), (15, "random", "linear"), (0, "random", "linear"),
    ):  # fmt: skip
        method = Auto()
        method.check(make_task(observed, positions=positions))
        assert (method.annotator, method.head().kind) == (annotator, kind)


def test_a_run_on_images_deploys_the_weights_of_the_kept_epoch(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", scenes=60, epochs=6, size=32)
    run = train(scenario.config(0), Auto(patience=1), tmp_path / "run")
    last = run.history[-1]
    kinds = {"cover": "areas", "random": "linear"}
    assert load_model(run.folder).spec.head.kind == kinds[last.status["annotator"]]
    values = [line.criteria["network"]["auc"] for line in run.history]
    # From the kept epoch on it stays the same, and its judgement is that of the new weights.
    first = last.status["kept_epoch"] - 1
    assert len(set(values[first:])) == 1
    assert first == 0 or values[first] != values[first - 1]
    # The average that the trainer could keep would be a second one.
    assert set(last.roles) == {"network", "student"}


def test_the_report_says_what_was_chosen_and_why():
    told = {
        "stage": "completing", "best_epoch": 3, "completed_after": 8, "annotator": "cover",
        "kept_epoch": 5, "kept_stage": "explaining", "kept_auc": 0.8312,
    }  # fmt: skip
    story = Auto.story(told, went_back=False)
    assert story.sentence == (
        "Auto took the label for land cover (classes compete for places) and kept epoch 5,"
        " before completing labels: it ranks held-out labels best (AUC 0.831)"
    )
    assert story.second_stage_after == 8
    assert 5 in [mark.epoch for mark in story.milestones]
    after = Auto.story({**told, "kept_epoch": 12, "kept_stage": "completing"}, went_back=False)
    assert "kept epoch 12, after completing labels: " in after.sentence
    early = Auto.story({**told, "completed_after": None}, went_back=False)
    assert "kept epoch 5: it ranks" in early.sentence
    tried = Auto.story({**told, "annotator_lead": 0.0351}, went_back=False)
    assert tried.sentence.startswith("Auto took the label for land cover (0.04 likelier per label)")
    nothing = Auto.story({**told, "kept_auc": None}, went_back=False)
    assert nothing.sentence.endswith("held-out labels rank nothing")


@pytest.mark.parametrize("annotator", ["cover", "random"])
def test_what_was_chosen_fits_on_two_lines_of_a_terminal(annotator):
    longest = {
        "completed_after": 100, "annotator": annotator, "kept_epoch": 100,
        "kept_stage": "explaining", "kept_auc": 0.8312,
    }  # fmt: skip
    said = f"{Auto.story(longest, went_back=False).sentence}."
    assert len(textwrap.wrap(said, 80)) == 2


def test_the_leeway_of_the_second_stage_is_no_part_of_the_value():
    method, network = made()
    method.kept_value, method.kept_epoch = 0.8, 2
    method.restarted(network, make_progress(3, epochs=9))
    assert method.status()["kept_auc"] == 0.8

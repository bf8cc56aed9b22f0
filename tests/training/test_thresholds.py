"""Thresholds live with the model: whatever decides asks it, from scores to pictures."""

from __future__ import annotations

import copy
import json
import re

import numpy as np
import pytest
import torch

from adagc.methods import find
from adagc.methods.state import AveragedNetwork
from adagc.metrics import score
from adagc.models import load_model, read_description, save_model
from adagc.priors import thresholds
from adagc.report import write_report
from adagc.training import held_out
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from adagc.training.scoring import evaluate, predictions_of, truth_of
from conftest import make_classifier, make_collection, make_labels
from tiny import write_scenario


@pytest.fixture
def run(tmp_path) -> Run:
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    config = RunConfig(
        labels=str(labels), epochs=3, batch_size=8, learning_rate=0.01, backbone="mlp", hidden=8,
        weights="none", accelerator="cpu", oracle=False,
    )  # fmt: skip
    return train(config, find("AN")(), tmp_path / "run", collection=collection)


def with_thresholds(run: Run, limits: list[float]) -> Run:
    """The run as if its model had been saved with these."""
    model = load_model(run.folder)
    model.set_thresholds(limits)
    save_model(run.folder, model, extra=read_description(run.folder).extra)
    return run


def last(run: Run) -> dict:
    return run.read_json("scores.json")["networks"]["network"]["last"]


def chips(run: Run, name: str) -> dict[str, list[int]]:
    """The chances in per cent of what the pictures of a report call right, wrong and missed."""
    path = write_report(run, out=run.folder / name, collection=make_collection("images"))
    found = re.findall(r'title="\w+: (right|wrong|missed), (\d+) %"', path.read_text())
    return {word: [int(c) for w, c in found if w == word] for word in ("right", "wrong", "missed")}


def test_usual_thresholds_are_said_as_ever(run):
    scores = run.read_json("scores.json")
    assert scores["threshold"] == 0.5
    assert "thresholds" not in scores
    assert set(run.read_json("model.json")["thresholds"].values()) == {0.5}
    page = write_report(run, out=run.folder / "p.html", collection=make_collection("images"))
    assert "F1 at the threshold of 0.5" in page.read_text()
    assert ">Threshold</th>" not in page.read_text()


def test_every_number_follows_the_thresholds_of_the_model(run):
    values, clean = predictions_of(run)["network-last"], truth_of(run)
    limits = np.quantile(values, [0.2, 0.4, 0.6, 0.8], axis=0).diagonal().astype(float).tolist()
    usual, before = last(run), chips(run, "before.html")
    result = evaluate(with_thresholds(run, limits), collection=make_collection("images")).to_dict()

    wanted = score(clean, values, np.array(limits, np.float32)).to_dict()
    assert {key: last(run)[key] for key in wanted} == wanted
    for key in ("mean_f1", "mean_recall", "mean_precision", "overall_accuracy"):
        assert last(run)[key] != usual[key]
    for key in ("mean_average_precision", "coverage", "ranking_loss"):
        assert last(run)[key] == usual[key]
    assert "threshold" not in result
    assert np.array_equal(np.float32(result["thresholds"]), np.float32(limits))
    assert np.array_equal(
        np.float32([*run.read_json("model.json")["thresholds"].values()]), np.float32(limits)
    )

    after = chips(run, "after.html")
    assert after != before
    page = (run.folder / "after.html").read_text()
    assert "F1 at the threshold of each class" in page
    for limit in result["thresholds"]:
        assert f"<td>{limit:.3f}</td>" in page


def test_pictures_are_judged_by_them(run):
    assert min(chips(run, "a.html")["right"]) >= 50
    found = chips(with_thresholds(run, [0.3] * 4), "b.html")
    assert 30 <= min(found["right"] + found["wrong"]) < 50
    assert max(found["missed"], default=0) <= 30
    assert not chips(with_thresholds(run, [1.5] * 4), "c.html")["right"]
    evaluate(run, collection=make_collection("images"))
    page = write_report(run, out=run.folder / "d.html", collection=make_collection("images"))
    assert "Never predicted at the threshold of 1.5" in page.read_text()
    assert "predicted if its probability reaches the threshold of 1.5." in page.read_text()


def test_runs_tested_at_other_thresholds_are_not_the_same_test(run, tmp_path):
    from adagc.report.record import Record

    one = Record.of(run)
    evaluate(with_thresholds(run, [0.3] * 4), collection=make_collection("images"))
    assert not one.same_test(Record.of(run))
    assert one.same_test(one)


def test_decisions_are_made_in_single_precision():
    network = make_classifier()
    network.set_thresholds([0.3, 0.5, 0.7, 0.9])
    assert network.thresholds.dtype == torch.float32
    at = torch.tensor([[0.3, 0.5, 0.7, 0.9]])
    below = torch.nextafter(at, torch.zeros(()))
    assert network.decide(torch.cat([at, below])).tolist() == [[True] * 4, [False] * 4]
    values = torch.cat([at, below]).numpy()
    counted = score(np.ones((2, 4)), values, network.thresholds.numpy()).per_class.predicted
    assert counted.tolist() == [1, 1, 1, 1]
    assert network.short_thresholds() == [0.3, 0.5, 0.7, 0.9]


def test_copies_have_their_own_and_averages_do_not_mix_them():
    network = make_classifier()
    averaged = AveragedNetwork(network, 0.5)
    network.set_thresholds([0.1, 0.2, 0.3, 0.4])
    twin = copy.deepcopy(network)
    averaged.update(network)
    assert averaged.network.thresholds.tolist() == [0.5] * 4
    twin.set_thresholds([0.9] * 4)
    assert network.short_thresholds() == [0.1, 0.2, 0.3, 0.4]
    assert AveragedNetwork(network, 0.5).network.short_thresholds() == [0.1, 0.2, 0.3, 0.4]


def test_a_method_may_set_them_while_it_trains(tmp_path):
    """What it leaves on the deployed network is saved, tested and reported."""

    class Cautious(find("AN")):
        def setup(self, network, task):
            super().setup(network, task)
            self.network_ = [network]  # not a sub-module

        def end_epoch(self, scores, progress):
            self.network_[0].set_thresholds([0.6] * 4)
            return super().end_epoch(scores, progress)

    collection = make_collection("images")
    config = RunConfig(
        labels=str(make_labels(collection, tmp_path / "labels.csv")), epochs=1, batch_size=8,
        backbone="mlp", hidden=8, weights="none", accelerator="cpu", oracle=False,
    )  # fmt: skip
    run = train(config, Cautious(), tmp_path / "run", collection=collection)
    assert load_model(run.folder).short_thresholds() == [0.6] * 4
    assert json.loads(run.path("scores.json").read_text())["thresholds"] == [0.6] * 4


# -- thresholds that a run learns from observed labels ---------------------------------------------


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> Run:
    """A run with enough validation images, whose scores are far too low for one half."""
    scenario = write_scenario(tmp_path_factory.mktemp("learnt") / "tiny", scenes=160, epochs=3)
    return train(scenario.config(0), find("AN")(), tmp_path_factory.mktemp("run") / "an")


def test_thresholds_are_learnt_from_observed_labels_and_stored_with_the_model(learnt):
    held = held_out.of_network(learnt, "network", "last")
    wanted = thresholds(held.probabilities, held.observed)
    assert load_model(learnt.folder).thresholds.tolist() == pytest.approx(wanted.tolist(), rel=1e-3)
    plain = thresholds(held.probabilities, held.observed, "expected-f1")
    assert wanted.tolist() != pytest.approx(plain.tolist(), rel=1e-3)  # it is another rule
    assert max(wanted) < 0.5  # AN takes unobserved classes for absent
    scores = learnt.scores
    assert scores.thresholds == pytest.approx(wanted.tolist(), rel=1e-3)
    predictions = predictions_of(learnt)["network-last"]
    found = score(
        truth_of(learnt), predictions, np.array(scores.thresholds, np.float32), absent="skip"
    )
    assert scores.final.mean_f1 == pytest.approx(found.mean_f1)
    assert scores.final.mean_f1 > score(truth_of(learnt), predictions, absent="skip").mean_f1


def test_every_network_has_thresholds_of_its_own(learnt):
    for name, choice in (("averaged", "last"), ("averaged", "best"), ("network", "best")):
        tested = learnt.scores.networks[name].epochs[choice]
        held = held_out.of_network(learnt, name, choice)
        wanted = thresholds(held.probabilities, held.observed)
        assert tested.thresholds == pytest.approx(wanted.tolist(), rel=1e-3)
        values = predictions_of(learnt)[f"{name}-{choice}"]
        limits = np.array(tested.thresholds, np.float32)
        assert tested.scores.mean_f1 == pytest.approx(
            score(truth_of(learnt), values, limits, absent="skip").mean_f1
        )
    assert learnt.scores.networks["network"].epochs["last"].thresholds is None


def test_evaluate_uses_the_same_thresholds_again(learnt):
    before = learnt.read_json("scores.json")
    evaluate(learnt)
    assert learnt.read_json("scores.json") == before


def test_runs_that_learn_their_thresholds_are_compared(learnt, tmp_path):
    config = RunConfig(
        **{k: v for k, v in learnt.settings.settings.items() if k in vars(RunConfig())}
    )
    other = train(config, find("WAN")(), tmp_path / "wan")
    assert other.scores.thresholds != learnt.scores.thresholds
    page = write_report(other, against=[learnt], out=tmp_path / "page.html").read_text()
    assert "do not compare" not in page
    assert "compared with AN" in page


def test_other_rules_can_be_asked_for(tmp_path):
    for rule in ("expected-f1", "shares", "half"):
        scenario = write_scenario(tmp_path / f"tiny-{rule}", scenes=160, epochs=1, thresholds=rule)
        run = train(scenario.config(0), find("AN")(), tmp_path / rule)
        held = held_out.of_network(run, "network", "last")
        wanted = thresholds(held.probabilities, held.observed, rule).tolist()
        assert list(run.scores.thresholds) == pytest.approx(wanted, rel=1e-3)
        assert (set(wanted) == {0.5}) == (rule == "half")


def test_halves_need_nothing_that_was_held_out(tmp_path):
    """A run of an older version, ended after its last epoch, has no such file and is completed."""
    scenario = write_scenario(tmp_path / "tiny", scenes=24, epochs=1, thresholds="half")
    run = train(scenario.config(0), find("AN")(), tmp_path / "run")
    for name in ("model.json", "scores.json", "validation/network-last.safetensors"):
        run.path(name).unlink()
    again = train(scenario.config(0), find("AN")(), tmp_path / "run", resume=True)
    assert again.scores is not None
    assert again.scores.threshold == 0.5

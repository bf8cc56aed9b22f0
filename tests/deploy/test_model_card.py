"""The model card says what the run recorded, with intervals, and what nobody may forget."""

from __future__ import annotations

import numpy as np
import pytest

from adagc.deploy.intervals import intervals
from adagc.deploy.licences import licences
from adagc.metrics import score
from adagc.models import load_model
from adagc.training.scoring import truth_of


@pytest.fixture(scope="module")
def card(exported) -> str:
    return (exported.folder / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_it_says_what_the_model_was_trained_on(small_run, card):
    assert card.startswith("# Auto on synthetic scenes\n")
    assert small_run.labels is not None
    assert small_run.labels.images.sentence in card
    assert "one label per image, simulated from clean ones (scheme random, seed 0)" in card
    assert f"test_resnet, head {load_model(small_run.folder).spec.head.kind}" in card
    for name in (*load_model(small_run.folder).spec.classes, "VV, VH, B01"):
        assert name in card
    assert "The scenes are generated" in card
    assert "adagc predict FOLDER INPUT" in card


def test_it_has_the_scores_of_the_deployed_network_with_intervals(small_run, card):
    final, found = small_run.scores.final, intervals(small_run)["mean_average_precision"]
    percent = 100 * np.array([final.mean_average_precision, found.low, found.high])
    assert "| mAP ↑ | {:.2f} | {:.2f} to {:.2f} |".format(*percent) in card
    first = load_model(small_run.folder).spec.classes[0]
    limit = load_model(small_run.folder).short_thresholds()[0]
    assert f"| {first} | {limit:g} | {100 * final.per_class.average_precision[0]:.1f} |" in card


def test_it_says_what_thresholds_are(card):
    assert "The thresholds are estimates from observed labels" in card
    assert "no clean label was used (rule pooled-f1)" in card


def test_code_in_the_card_runs(card, exported, monkeypatch):
    pytest.importorskip("onnxruntime")
    code = card.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(exported.folder)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["present"].shape == (1, 19)


def test_intervals_are_those_of_drawing_images_anew(small_run):
    """Slow twin: scores of 200 resamples, one after the other."""
    truth, found = truth_of(small_run), small_run.predictions["network-last"]
    limits = load_model(small_run.folder).thresholds.numpy()
    random = np.random.default_rng(3)
    drawn = {"mean_average_precision": [], "mean_f1": []}
    for _ in range(200):
        rows = random.integers(len(truth), size=len(truth))
        scores = score(truth[rows], found[rows], limits, absent="skip")
        for key, values in drawn.items():
            values.append(scores[key])
    plain = score(truth, found, limits, absent="skip")
    for key, interval in intervals(small_run).items():
        reach = 1.96 * np.std(drawn[key])
        assert interval.low == pytest.approx(max(plain[key] - reach, 0), abs=0.25 * reach)
        assert interval.high == pytest.approx(plain[key] + reach, abs=0.25 * reach)


def test_licences_are_those_of_data_and_weights():
    assert licences("aid", "none").data == "AID is for research only."
    assert "not known here" in licences("folder", "none").data
    assert "not known here" in licences("a data set of somebody", "none").data
    assert "random weights" in licences("aid", "none").weights
    assert "apache-2.0" in licences("aid", "hub:resnet34.a1_in1k").weights.lower()
    assert "best.pth, whose licence is not known" in licences("aid", "file:best.pth").weights
    gone = licences("aid", "registry:no_such_package 1.0").weights
    assert gone == (
        "Its initial weights are of the package no_such_package 1.0, whose licence is not known"
        " here."
    )
    assert "AID is for research only." in licences("aid", "none").note

"""The shipped configurations of reBEN, as they are but for the number of epochs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adagc.bench.scenarios import SHIPPED, load
from adagc.cli import main
from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.training.runs import Run

PATCHES, EPOCHS = 320, 2  # half of them train, in one step


@pytest.mark.parametrize("name", ["reben-random", "reben-dominant"])
def test_they_are_the_paper_s(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ADAGC_REBEN", str(tmp_path))
    scenario = load(name)
    told = scenario.config(0)
    assert (told.backbone, told.weights, told.bands) == ("resnet34", "none", None)
    assert (told.batch_size, told.epochs) == (512, 70)
    assert (told.optimiser, told.learning_rate) == ("adam", 1e-3)
    assert told.scheme == name.removeprefix("reben-")
    assert scenario.told("AdaGC").get("weight", 3) == {"random": 3, "dominant": 5}[told.scheme]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [("reben-random", "AdaGC"), ("reben-dominant", "AdaGC"), ("reben-random", "Auto")],
)
def test_a_few_hundred_patches_are_trained_on(tmp_path, monkeypatch, name, method):
    """In parts of 16 patches, so that a batch of 512 fits into the memory of a small machine."""
    generate(tmp_path / "reBEN", PATCHES, seed=4, cloudy=0)
    prepare(tmp_path / "reBEN", tmp_path / "store")
    monkeypatch.setenv("ADAGC_REBEN", str(tmp_path / "store"))
    out = tmp_path / "run"
    words = ["train", "--config", str(SHIPPED / name / "scenario.yaml"), "--method", method]
    less = ["--epochs", str(EPOCHS), "--device-batch", "16", "--absent", "skip"]
    assert main([*words, *less, "--report", "false", "--out", str(out)]) == 0

    run = Run.open(out)
    assert run.finished
    assert (run.config["backbone"], run.config["batch_size"]) == ("resnet34", 512)
    assert len(run.history) == EPOCHS
    losses = [next(iter(record.losses.values())) for record in run.history]
    assert np.isfinite(losses).all()
    if method == "Auto":  # its second stage, on completed labels, has another loss
        stages = [set(record.losses) for record in run.history]
        assert stages == [{"total", "likelihood"}, {"total", "likelihood", "completion"}]
    else:
        assert losses[-1] < losses[0]
    model = json.loads((out / "model.json").read_text())
    data = bigearthnet_collection(tmp_path / "store")
    measured = data.images.moments(data.splits["train"])
    assert measured is not None
    np.testing.assert_allclose(
        model["normalisation"]["mean"], measured.statistics(data.images.bands).mean, rtol=1e-5
    )
    assert run.scores is not None
    assert len(run.predictions) > 0
    assert all(np.isfinite(values).all() for values in run.predictions.values())

"""What a run keeps of its validation images, and the frequencies that are estimated from it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from adagc.cli import main
from adagc.errors import AdagcError
from adagc.methods import find
from adagc.priors import estimate
from adagc.report import write_report
from adagc.training import held_out
from adagc.training.experiment import train
from adagc.training.frequencies import frequencies
from adagc.training.inputs import open_configured
from adagc.training.runs import Run
from adagc.training.views import VIEWS
from tiny import write_scenario


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on 80 validation scenes, with its average."""
    place = tmp_path_factory.mktemp("frequencies")
    scenario = write_scenario(place / "scenario", scenes=160, epochs=3)
    return train(scenario.config(0), find("Random label")(), place / "run").folder


def test_a_run_keeps_what_its_networks_predict_for_validation_images(folder):
    run = Run.open(folder)
    names = sorted(path.name for path in run.path("validation").iterdir())
    assert names == [
        f"{network}-{choice}.safetensors"
        for network in ("averaged", "network")
        for choice in ("best", "last")
    ]
    images = run.labels.images.val
    for view in VIEWS.values():
        held = held_out.load(run, view)
        assert held.probabilities.shape == held.observed.shape == (images, 19)
        assert (held.observed > 0).sum(axis=1).tolist() == [1] * images
    # What is kept is what was judged: the criterion in the history follows from it.
    from adagc.metrics import criteria

    for choice in ("best", "last"):
        held = held_out.load(run, VIEWS[f"averaged-{choice}"])
        told = [line.criteria["averaged"]["auc"] for line in run.history]
        found = criteria(held.observed, held.probabilities)["auc"]
        assert found == pytest.approx(max(told) if choice == "best" else told[-1], abs=1e-9)


def test_the_command_prints_the_estimate_for_every_class(folder, capsys):
    assert main(["priors", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    held = held_out.load(Run.open(folder))
    assert told["network"] == held.network == "averaged"
    wanted = estimate(held.probabilities, held.observed)
    assert told["frequencies"] == pytest.approx(wanted.frequencies.tolist())
    assert told["cardinality"] == pytest.approx(sum(told["frequencies"]))
    assert told["interval"][0] <= told["cardinality"] <= told["interval"][1]
    assert sum(told["observed"]) == pytest.approx(1)
    assert main(["priors", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "Arable land" in out
    assert ("labels each" in out) == told["trusted"]


def test_the_report_says_how_many_labels_images_show(folder):
    page = write_report(Run.open(folder)).read_text()
    assert "Labels per image, estimated" in page
    found = frequencies(Run.open(folder)).priors
    assert (f"about {found.cardinality:.1f}" in page) == found.trusted


def test_labels_of_dominant_classes_are_said_to_tell_nothing(tmp_path, capsys):
    scenario = write_scenario(tmp_path / "scenario", scenes=160, scheme="dominant", epochs=1)
    collection = open_configured(scenario.config(0))
    run = train(scenario.config(0), find("AN")(), tmp_path / "run", collection=collection)
    found = frequencies(run)
    assert not found.priors.trusted
    assert "dominant" in found.sentence
    assert main(["priors", str(run.folder)]) == 0
    out = capsys.readouterr().out
    assert "cannot be" in out
    assert "95 %" not in out
    assert "not known" in write_report(run, collection=collection).read_text()


def test_a_run_in_memory_has_them_too():
    from conftest import make_collection

    collection = make_collection("images")
    from adagc.training.config import RunConfig

    config = RunConfig(scheme="random", epochs=1, backbone="mlp", weights="none", accelerator="cpu")
    run = train(config, find("AN")(), collection=collection)
    held = held_out.load(run)
    assert held.network == "network"
    assert np.isfinite(held.probabilities).all()


@pytest.mark.parametrize("how", ["missing", "damaged", "empty", "no labels", "other classes"])
def test_runs_without_predictions_are_refused_in_one_line(folder, tmp_path, capsys, how):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    if how == "missing":
        shutil.rmtree(copy / "validation")
    elif how == "damaged":
        (copy / "validation" / "averaged-best.safetensors").write_bytes(b"nothing")
    elif how == "empty":
        (copy / "history.jsonl").unlink()
    elif how == "no labels":
        (copy / "labels.json").unlink()
    else:
        told = json.loads((copy / "labels.json").read_text())
        (copy / "labels.json").write_text(json.dumps({**told, "classes": told["classes"][:3]}))
    assert main(["priors", str(copy)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(copy) in error.replace("\n", "")
    with pytest.raises(AdagcError):
        frequencies(Run.open(copy))

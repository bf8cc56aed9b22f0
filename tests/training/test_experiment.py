from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adagc.errors import AdagcError, UsageError
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.expected_positives import ExpectedPositives
from adagc.methods.ground_truth import GroundTruth
from adagc.metrics import score
from adagc.models import load_model
from adagc.training.config import RunConfig
from adagc.training.evaluate import predict
from adagc.training.experiment import config_of, evaluate, make_task, predictions_of, train
from adagc.training.observe import observe
from conftest import make_labels

QUICK = {
    "epochs": 3, "batch_size": 8, "learning_rate": 0.02, "hidden": 8, "accelerator": "cpu",
}  # fmt: skip


def config(**options) -> RunConfig:
    return RunConfig(**{**QUICK, "scheme": "random", **options})


def test_scores_are_of_the_deployed_network_on_the_clean_test_set(tmp_path, embeddings):
    run = train(config(), AssumeNegative(), tmp_path / "run", collection=embeddings)
    rows = embeddings.splits["test"]
    values = predict(load_model(run.folder), embeddings.images, rows)
    wanted = score(embeddings.truth[rows], values)
    found = run.read_json("scores.json")
    last = found["networks"]["network"]["last"]
    assert found["split"] == "test"
    assert found["images"] == 24
    assert found["classes"] == list(embeddings.classes)
    assert last["epoch"] == 3
    assert {name: last[name] for name in wanted.summary()} == pytest.approx(wanted.summary())
    np.testing.assert_array_equal(predictions_of(run)["network-last"], values)


def test_every_reported_network_gets_a_row(tmp_path, embeddings):
    method = AdaGC(trigger_epoch=1)
    run = train(config(average=0.9), method, tmp_path / "run", collection=embeddings)
    table = run.read_json("scores.json")["networks"]
    assert set(table) == {"network", "teacher", "averaged"}
    assert all(set(row) == {"last", "best"} for row in table.values())
    for name, epoch in run.read_json("model.json")["extra"]["best_epoch"].items():
        assert table[name]["best"]["epoch"] == epoch
    saved = load_file(run.path("model.safetensors"))
    student = load_file(run.path("weights/network-last.safetensors"))
    teacher = load_file(run.path("weights/teacher-last.safetensors"))
    assert all(torch.equal(saved[name], student[name]) for name in saved)
    assert not all(torch.equal(saved[name], teacher[name]) for name in saved)


def test_without_weight_and_mixup_the_run_is_that_of_assuming_negatives(tmp_path, embeddings):
    """Bit for bit, through the front door."""
    settings = config(epochs=4, dropout=0.2)
    plain = train(settings, AssumeNegative(), tmp_path / "an", collection=embeddings)
    method = AdaGC(weight=0.0, mixup=0.0, restore=False, patience=1, minimum_warm_up=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = train(settings, method, tmp_path / "adagc", collection=embeddings)
    assert method.calibrating
    assert method.triggered_after < 4
    for name in ("model.safetensors", "weights/network-best.safetensors"):
        one, two = load_file(plain.path(name)), load_file(other.path(name))
        assert all(torch.equal(one[key], two[key]) for key in one)
    for line, twin in zip(plain.history, other.history, strict=True):
        assert line["noisy"]["network"] == twin["noisy"]["network"]


def test_it_learns(tmp_path, embeddings):
    run = train(config(epochs=25), GroundTruth(), tmp_path / "run", collection=embeddings)
    last = run.read_json("scores.json")["networks"]["network"]["last"]
    assert last["mean_average_precision"] > 0.9
    assert last["mean_recall"] > 0.8


def test_a_task_holds_the_training_rows_and_no_more(embeddings):
    settings = config()
    observed = observe(embeddings, labels=None, scheme="random", label_seed=0)
    clean = torch.from_numpy(embeddings.truth[embeddings.splits["train"]].astype(np.float32))
    task = make_task(settings, AssumeNegative(), embeddings, observed)
    assert task.observed.shape == (24, 4)
    assert task.observed.dtype == torch.int8
    assert (task.observed.numpy() == observed.values[embeddings.splits["train"]]).all()
    assert (task.epochs, task.steps_per_epoch, task.seed) == (3, 3, 0)
    assert task.truth is task.priors is task.text is None
    assert torch.equal(make_task(settings, GroundTruth(), embeddings, observed).truth, clean)
    prior = make_task(settings, ExpectedPositives(), embeddings, observed)
    torch.testing.assert_close(prior.priors, clean.mean(0))
    assert prior.truth is None


def test_settings_come_back_from_the_folder(tmp_path, embeddings):
    settings = config(schedule="cosine", clip=1.0)
    run = train(settings, AssumeNegative(), tmp_path / "run", collection=embeddings)
    assert config_of(run) == settings


# -- labels ----------------------------------------------------------------------------------


def test_a_label_file_and_its_simulation_train_alike(tmp_path, embeddings):
    labels = make_labels(embeddings, tmp_path / "labels.csv", seed=3)
    one = train(
        config(scheme=None, labels=str(labels)),
        AssumeNegative(),
        tmp_path / "file",
        collection=embeddings,
    )
    two = train(config(label_seed=3), AssumeNegative(), tmp_path / "scheme", collection=embeddings)
    a, b = (load_file(run.path("model.safetensors")) for run in (one, two))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert read_labels(one.path("labels.csv")).hash == one.read_json("labels.json")["hash"]
    assert (read_labels(two.path("labels.csv")).values == read_labels(labels).values).all()


def test_simulated_labels_are_one_true_label_each_and_none_for_the_test(embeddings):
    found = observe(embeddings, labels=None, scheme="random", label_seed=1)
    for name in ("train", "val"):
        rows = embeddings.splits[name]
        assert (found.values[rows].sum(1) == 1).all()
        assert (embeddings.truth[rows] | (found.values[rows] == 0)).all()
    assert not found.values[embeddings.splits["test"]].any()
    clean = observe(embeddings, labels=None, scheme="clean", label_seed=1)
    rows = embeddings.splits["train"]
    assert ((clean.values[rows] == 1) == embeddings.truth[rows]).all()


def test_images_without_a_positive_are_left_out_and_counted(tmp_path, embeddings, caplog):
    values = np.zeros((64, 4), np.int8)
    values[:40, 0] = 1
    values[3] = 0
    values[30] = [-1, 0, 0, 0]
    path = tmp_path / "labels.csv"
    write_labels(LabelTable(embeddings.images.names, embeddings.classes, values), path)
    found = observe(embeddings, labels=str(path), scheme=None, label_seed=0)
    assert 3 not in found.train
    assert 30 not in found.val
    assert (len(found.train), len(found.val), found.left_out) == (23, 15, 2)
    assert "2 of 40" in caplog.text


def test_labels_must_come_from_exactly_one_place(tmp_path, embeddings):
    for labels, scheme in ((None, None), ("x.csv", "random")):
        with pytest.raises(UsageError, match="--labels FILE or --scheme"):
            train(
                config(labels=labels, scheme=scheme),
                AssumeNegative(),
                tmp_path / "run",
                collection=embeddings,
            )
    blind = dataclasses.replace(embeddings, truth=None)
    with pytest.raises(UsageError, match="needs clean labels"):
        train(config(), AssumeNegative(), tmp_path / "run", collection=blind)
    with pytest.raises(UsageError, match="areas"):
        train(config(scheme="dominant"), AssumeNegative(), tmp_path / "run", collection=embeddings)
    assert not (tmp_path / "run").exists()


def test_dominant_labels_are_the_largest_classes(embeddings):
    areas = np.random.default_rng(0).random((64, 4)).astype(np.float32) * embeddings.truth
    found = observe(
        dataclasses.replace(embeddings, areas=areas), labels=None, scheme="dominant", label_seed=0
    )
    rows = embeddings.splits["train"]
    assert (found.values[rows].argmax(1) == areas[rows].argmax(1)).all()


def test_too_few_labelled_images_are_an_error(tmp_path, embeddings):
    path = tmp_path / "labels.csv"
    write_labels(
        LabelTable(embeddings.images.names[:1], embeddings.classes, np.eye(1, 4, dtype=np.int8)),
        path,
    )
    with pytest.raises(AdagcError, match="only 1 training image"):
        observe(embeddings, labels=str(path), scheme=None, label_seed=0)


# -- classes and splits ----------------------------------------------------------------------


def without_class(collection, name: str):
    truth = collection.truth.copy()
    truth[collection.splits["test"], collection.classes.index(name)] = False
    return dataclasses.replace(collection, truth=truth)


def test_a_class_that_the_test_lacks_stops_before_training(tmp_path, embeddings):
    lacking = without_class(embeddings, "urban")
    with pytest.raises(AdagcError, match="no test image contains urban"):
        train(config(), AssumeNegative(), tmp_path / "run", collection=lacking)
    assert not (tmp_path / "run").exists()
    run = train(config(absent="skip"), AssumeNegative(), tmp_path / "run", collection=lacking)
    per_class = run.read_json("scores.json")["networks"]["network"]["last"]["per_class"]
    assert per_class["average_precision"][2] is None


def test_other_splits_are_scored_apart_from_the_test(tmp_path, embeddings):
    run = train(config(), AssumeNegative(), tmp_path / "run", collection=embeddings)
    before = run.path("scores.json").read_bytes()
    found = evaluate(run, split="val", collection=embeddings)
    assert found["images"] == 16
    assert run.read_json("scores-val.json")["split"] == "val"
    assert run.path("scores.json").read_bytes() == before
    assert predictions_of(run, "val")["network-last"].shape == (16, 4)
    with pytest.raises(AdagcError, match="no split 'nowhere': choose from train, val, test"):
        evaluate(run, split="nowhere", collection=embeddings)
    with pytest.raises(AdagcError, match="no clean labels"):
        evaluate(run, collection=dataclasses.replace(embeddings, truth=None))


def test_pictures_need_no_settings_of_their_own(tmp_path, pictures):
    run = train(
        config(backbone="linear", epochs=1), AssumeNegative(), tmp_path / "run", collection=pictures
    )
    assert run.finished
    spec = run.read_json("model.json")["spec"]
    assert spec["shape"] == [3, 6, 6]
    assert spec["bands"] == ["red", "green", "blue"]


def test_normalisation_is_measured_on_the_training_images_alone(tmp_path, pictures):
    values = pictures.images.gather(np.arange(64))
    values[pictures.splits["val"]] = 0
    values[pictures.splits["test"]] = 255
    changed = dataclasses.replace(
        pictures, images=type(pictures.images)(values, bands=pictures.images.bands)
    )
    found = []
    for name, collection in (("one", pictures), ("two", changed)):
        run = train(
            config(backbone="linear", epochs=1),
            AssumeNegative(),
            tmp_path / name,
            collection=collection,
        )
        found.append(run.read_json("model.json")["normalisation"])
    assert found[0] == found[1]
    with pytest.raises(AdagcError, match="--normalise measured"):
        train(
            config(backbone="linear", normalise="pretrained"),
            AssumeNegative(),
            tmp_path / "x",
            collection=pictures,
        )
    assert not (tmp_path / "x").exists()


def test_callbacks_are_called(tmp_path, embeddings):
    steps, epochs = [], []
    train(
        config(), AssumeNegative(), tmp_path / "run", collection=embeddings,
        on_step=lambda progress, losses: steps.append((progress.step, losses.total.item())),
        on_epoch=lambda line: epochs.append(line["epoch"]),
    )  # fmt: skip
    assert [step for step, _ in steps] == list(range(9))
    assert epochs == [1, 2, 3]


def test_no_machine_path_of_the_labels_is_written_into_labels_json(tmp_path, embeddings):
    labels = make_labels(embeddings, tmp_path / "labels.csv")
    run = train(
        config(scheme=None, labels=str(labels)),
        AssumeNegative(),
        tmp_path / "run",
        collection=embeddings,
    )
    assert run.read_json("labels.json")["source"] == Path(labels).name

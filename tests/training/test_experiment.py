from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adagc.cli import main
from adagc.datasets import DataSet, collect
from adagc.errors import AdagcError, UsageError
from adagc.inference import predict
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.labels import files as label_files
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.boost import BoostLU
from adagc.methods.expected_positives import ExpectedPositives
from adagc.methods.ground_truth import GroundTruth
from adagc.metrics import score
from adagc.models import load_model
from adagc.report import write_report
from adagc.training.config import RunConfig
from adagc.training.experiment import (
    config_of,
    evaluate,
    open_configured,
    predictions_of,
    train,
)
from adagc.training.observe import observe
from adagc.training.pilot import informed, known_priors
from adagc.training.records import OracleRecord
from adagc.training.task import make_task
from conftest import make_collection, make_labels

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
        assert line.noisy["network"] == twin.noisy["network"]


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
    assert prior.priors is prior.truth is None
    told = known_priors("truth", settings, ExpectedPositives(), embeddings, observed)
    torch.testing.assert_close(informed(prior, told).priors, clean.mean(0))


def test_settings_come_back_from_the_folder(tmp_path, embeddings):
    settings = config(schedule="cosine", clip=1.0)
    run = train(settings, AssumeNegative(), tmp_path / "run", collection=embeddings)
    # Whatever was left to be chosen is decided in the folder.
    assert config_of(run) == dataclasses.replace(settings, backbone="mlp", weights="none")


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
    file = str(make_labels(embeddings, tmp_path / "x.csv"))
    for labels, scheme in ((None, None), (file, "random")):
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


def test_a_class_that_the_test_lacks_is_left_out_and_named(tmp_path, embeddings, caplog):
    lacking = without_class(embeddings, "urban")
    said = "mAP is the mean over 3 of 4 classes: no tested image contains urban."
    with caplog.at_level("INFO", "adagc"):
        run = train(config(), AssumeNegative(), tmp_path / "run", collection=lacking)
    assert sum(said in line for line in caplog.messages) == 1
    found = run.read_json("scores.json")
    last = found["networks"]["network"]["last"]
    precision = last["per_class"]["average_precision"]
    assert precision[2] is None
    rest = [value for value in precision if value is not None]
    assert last["mean_average_precision"] == pytest.approx(np.mean(rest))
    assert found["absent"] == ["urban"]
    assert run.scores.absent == ("urban",)
    assert said in write_report(run, collection=lacking).read_text(encoding="utf-8")
    with pytest.raises(AdagcError, match="no test image contains urban"):
        evaluate(run, collection=lacking, absent="error")


def test_a_class_that_the_test_lacks_stops_before_training_on_request(tmp_path, embeddings):
    lacking = without_class(embeddings, "urban")
    with pytest.raises(AdagcError, match="no test image contains urban"):
        train(config(absent="error"), AssumeNegative(), tmp_path / "run", collection=lacking)
    assert not (tmp_path / "run").exists()
    for name in embeddings.classes:
        lacking = without_class(lacking, name)
    with pytest.raises(AdagcError, match="none of the 24 test images contains any class"):
        train(config(), AssumeNegative(), tmp_path / "run", collection=lacking)
    assert not (tmp_path / "run").exists()


def test_a_test_with_all_classes_says_nothing(tmp_path, embeddings, caplog):
    with caplog.at_level("INFO", "adagc"):
        run = train(config(), AssumeNegative(), tmp_path / "run", collection=embeddings)
    assert not any("classes" in line for line in caplog.messages)
    assert run.read_json("scores.json")["absent"] == []
    assert run.scores.remark == ""


def test_how_many_images_serve_for_what_is_said_and_recorded(tmp_path, embeddings, caplog):
    known = np.ones(len(embeddings.images), dtype=bool)
    known[:20] = False
    some = dataclasses.replace(embeddings, known=known)
    labels = make_labels(embeddings, tmp_path / "labels.csv")
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join(lines[:-3]) + "\n")  # three validation images have no label
    with caplog.at_level("INFO", "adagc"):
        run = train(
            config(scheme=None, labels=str(labels)),
            AssumeNegative(),
            tmp_path / "run",
            collection=some,
        )
    kinds = "labelled: 24 / 13 / 0; with clean labels: 4 / 13 / 24"
    said = f"24 images for training, 13 for validation, 24 for testing; {kinds}"
    assert caplog.messages.count(said) == 1
    assert run.read_json("labels.json")["images"] == {
        "train": 24, "val": 13, "test": 24, "left_out": 3, "train_clean": 4, "val_clean": 13,
        "test_clean": 24, "test_labelled": 0,
    }  # fmt: skip
    assert run.labels.images.sentence == said
    details = f"{kinds}; 3 images without a label are left out"
    assert details in write_report(run, collection=some).read_text(encoding="utf-8")


def test_other_splits_are_scored_apart_from_the_test(tmp_path, embeddings):
    run = train(config(), AssumeNegative(), tmp_path / "run", collection=embeddings)
    before = run.path("scores.json").read_bytes()
    found = evaluate(run, split="val", collection=embeddings)
    assert found.images == 16
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
    assert spec["shape"] == [3]  # plain layers see the mean of an image
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
        on_epoch=lambda line: epochs.append(line.epoch),
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


# -- the data of a run -----------------------------------------------------------------------


@pytest.fixture
def on_disk(tmp_path) -> dict[str, str]:
    """Embeddings, labels and clean labels as files, as a user has them."""
    collection = make_collection()
    names = tuple(f"{i:05d}" for i in range(len(collection.images)))
    np.save(tmp_path / "embeddings.npy", collection.images.gather(np.arange(len(names))))
    clean = LabelTable(names, collection.classes, collection.truth.astype(np.int8))
    write_labels(clean, tmp_path / "truth.csv")
    make_labels(collection, tmp_path / "one.csv")
    parts = [f"{names[row]},{part}" for part, rows in collection.splits.items() for row in rows]
    (tmp_path / "split.csv").write_text("\n".join(["image,split", *parts]))
    return {
        "data": "array",
        "root": str(tmp_path / "embeddings.npy"),
        "labels": str(tmp_path / "one.csv"),
        "truth": str(tmp_path / "truth.csv"),
        "split": str(tmp_path / "split.csv"),
    }


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Data sets that were opened and label files that were read, in order."""
    seen: list[str] = []

    def open_counted(self, **options):
        seen.append(f"--data {self.name}")
        return open_data_set(self, **options)

    def read_counted(path):
        seen.append(Path(path).name)
        return open_text(path)

    open_data_set, open_text = DataSet.open, label_files.open_text
    monkeypatch.setattr(DataSet, "open", open_counted)
    monkeypatch.setattr(label_files, "open_text", read_counted)
    return seen


def test_the_command_opens_the_data_once_and_reads_each_label_file_once(tmp_path, opened):
    """Training, testing and the report together; pictures, so that the report has a gallery."""
    images, labels, truth = tmp_path / "images", tmp_path / "one.csv", tmp_path / "truth.csv"
    images.mkdir()
    collection = make_collection("images")
    names = tuple(f"{i:05d}" for i in range(64))
    for name, values in zip(names, collection.images.gather(np.arange(64)), strict=True):
        np.save(images / f"{name}.npy", values)
    write_labels(LabelTable(names, collection.classes, collection.truth.astype(np.int8)), truth)
    one = collection.truth & (np.cumsum(collection.truth, axis=1) == 1)
    write_labels(LabelTable(names, collection.classes, one.astype(np.int8), kind="single"), labels)
    words = {
        "root": images, "labels": labels, "truth": truth, "cache": tmp_path / "cache",
        "method": "AN", "backbone": "linear", "epochs": 1, "batch_size": 8, "out": tmp_path / "run",
    }  # fmt: skip
    assert main(["train", *(f"--{name}={value}" for name, value in words.items())]) == 0
    assert "observed: " in (tmp_path / "run" / "report.html").read_text()
    assert sorted(opened) == ["--data folder", "one.csv", "truth.csv"]


def test_simulated_labels_are_read_back_for_the_report_alone(tmp_path, opened):
    words = [
        "--data", "synthetic", "--scenes", "24", "--size", "16", "--scheme", "random",
        "--absent", "skip", "--method", "AN", "--backbone", "linear", "--epochs", "1",
    ]  # fmt: skip
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert opened == ["--data synthetic", "labels.csv"]


def test_labels_are_read_for_a_data_set_that_opens_without_them(tmp_path, opened, embeddings):
    labels = make_labels(embeddings, tmp_path / "one.csv")
    settings = config(scheme=None, labels=str(labels))
    train(settings, AssumeNegative(), tmp_path / "run", collection=embeddings)
    assert opened == ["one.csv"]


def test_labels_may_lie_beside_the_data(tmp_path, on_disk):
    beside = {**on_disk, "labels": "one.csv", "truth": "truth.csv", "split": "split.csv"}
    runs = [
        train(RunConfig(**settings, epochs=2), AssumeNegative(), tmp_path / name)
        for name, settings in (("there", on_disk), ("beside", beside))
    ]
    one, two = (run.read_json("labels.json") for run in runs)
    assert one == two
    assert runs[0].read_json("inputs.json") == runs[1].read_json("inputs.json")


def same_weights(one, two) -> bool:
    a, b = (load_file(run.path("model.safetensors")) for run in (one, two))
    return all(torch.equal(a[name], b[name]) for name in a)


def test_labels_as_a_table_train_like_the_file(tmp_path, on_disk, opened):
    """Given with the configured data, with an opened collection, or inside of it."""
    settings = RunConfig(**on_disk, epochs=2)
    wanted = train(settings, AssumeNegative(), tmp_path / "file")
    table = read_labels(Path(on_disk["labels"]))
    none = dataclasses.replace(settings, labels=None)
    with_labels, without = open_configured(settings), open_configured(none)
    opened.clear()
    for name, given in {
        "table": {"labels": table},
        "table and collection": {"labels": table, "collection": without},
        "collection": {"collection": with_labels},
    }.items():
        run = train(none, AssumeNegative(), tmp_path / name, **given)
        assert run.read_json("labels.json")["hash"] == table.hash
        assert same_weights(run, wanted), name
    assert opened == [
        "--data array",
        "truth.csv",
        "split.csv",
    ]  # the first alone had to open something
    path = train(none, AssumeNegative(), tmp_path / "path", labels=Path(on_disk["labels"]))
    assert config_of(path).labels == on_disk["labels"]
    assert same_weights(path, wanted)


def test_given_labels_win_over_the_configured_file(tmp_path, on_disk):
    table = read_labels(Path(on_disk["labels"]))
    other = dataclasses.replace(table, values=np.roll(table.values, 1, axis=1))
    settings = RunConfig(**on_disk, epochs=1)
    collection = open_configured(settings)
    run = train(settings, AssumeNegative(), tmp_path / "a", collection=collection, labels=other)
    assert run.read_json("labels.json")["hash"] == other.hash
    assert config_of(run).labels is None  # no file, so none is recorded
    # also a file other than the one that came with the collection
    write_labels(other, tmp_path / "other.csv")
    changed = dataclasses.replace(settings, labels=str(tmp_path / "other.csv"))
    run = train(changed, AssumeNegative(), tmp_path / "b", collection=collection)
    assert run.read_json("labels.json")["hash"] == other.hash
    with pytest.raises(UsageError, match="either --labels FILE or --scheme"):
        train(config(), AssumeNegative(), tmp_path / "c", collection=collection, labels=other)


def test_images_and_labels_as_objects(tmp_path):
    """No file and no folder of images: what an estimator needs."""
    made = make_collection("embeddings")
    names = made.images.names
    one = LabelTable(
        names[::-1],
        made.classes[::-1],
        (made.truth & (np.cumsum(made.truth, axis=1) == 1))[::-1, ::-1].astype(np.int8),
        kind="single",
    )
    clean = LabelTable(names, made.classes, made.truth.astype(np.int8))
    collection = collect(made.images, labels=one, truth=clean, seed=3)
    assert collection.classes == made.classes
    assert (collection.truth == made.truth).all()
    assert {part: len(rows) for part, rows in collection.splits.items()} == {
        "train": 38, "val": 13, "test": 13,
    }  # fmt: skip
    seen = observe(collection, labels=None, scheme=None, label_seed=0)
    assert seen.values is collection.observed_values
    assert (seen.values == (made.truth & (np.cumsum(made.truth, axis=1) == 1))).all()
    run = train(RunConfig(**QUICK), AssumeNegative(), tmp_path / "run", collection=collection)
    assert run.read_json("scores.json")["images"] == 13
    with pytest.raises(ValueError, match="go together"):
        dataclasses.replace(collection, observed_values=None)


def test_columns_in_another_order_change_no_score(tmp_path, on_disk):
    run = train(RunConfig(**on_disk, epochs=2), AssumeNegative(), tmp_path / "run")
    before = run.read_json("scores.json")
    clean = read_labels(Path(on_disk["truth"]), kind="multi")
    write_labels(clean.select(clean.classes[::-1]), Path(on_disk["truth"]))
    assert evaluate(run).to_dict() == before


def test_evaluation_knows_its_images(tmp_path, on_disk):
    run = train(RunConfig(**on_disk, epochs=2), AssumeNegative(), tmp_path / "run")
    before = run.read_json("scores.json")
    # Another split on disk does not matter: the run remembers its own.
    Path(on_disk["split"]).write_text("image,split\n00000,test\n00001,train\n00002,val\n")
    assert evaluate(run).to_dict() == before
    moved = tmp_path / "elsewhere.npy"
    Path(on_disk["root"]).rename(moved)
    with pytest.raises(AdagcError):
        evaluate(run)
    assert evaluate(run, root=str(moved)).to_dict() == before
    np.save(moved, np.load(moved)[:10])
    with pytest.raises(AdagcError):
        evaluate(run, root=str(moved))


def test_a_changed_split_is_not_mixed_into_a_run(tmp_path, on_disk):
    train(RunConfig(**on_disk, epochs=2), AssumeNegative(), tmp_path / "run")
    text = Path(on_disk["split"]).read_text()
    changed = text.replace("00000,train", "00000,val")
    assert changed != text
    Path(on_disk["split"]).write_text(changed)
    with pytest.raises(UsageError, match="another split"):
        train(RunConfig(**on_disk, epochs=2), AssumeNegative(), tmp_path / "run", resume=True)


def test_clean_labels_of_some_images_are_enough(tmp_path, on_disk):
    """Truth of the test images only: trained, tested, and no flip rates made up."""
    clean = read_labels(Path(on_disk["truth"]), kind="multi")
    write_labels(clean.take(np.arange(40, 64)), Path(on_disk["truth"]))
    config = RunConfig(**on_disk, epochs=2)
    run = train(config, AdaGC(), tmp_path / "run")
    assert run.read_json("scores.json")["images"] == 24
    assert "flip_rates" not in run.read_json("labels.json")
    assert all(line.oracle == OracleRecord() for line in run.history)
    with pytest.raises(AdagcError, match="GT w/ BCE needs truth"):
        train(config, GroundTruth(), tmp_path / "gt")
    write_labels(clean.take(np.arange(10, 64)), Path(on_disk["truth"]))
    with pytest.raises(AdagcError, match="10 of 24 have none"):
        train(config, GroundTruth(), tmp_path / "gt")
    assert not (tmp_path / "gt").exists()


def test_one_label_per_image_is_no_truth(tmp_path, on_disk):
    with pytest.raises(AdagcError, match="one label per image"):
        train(
            RunConfig(**{**on_disk, "truth": on_disk["labels"]}), AssumeNegative(), tmp_path / "run"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 1),
        ("learning_rate", -1.0),
        ("learning_rate", float("nan")),
        ("clip", -1.0),
        ("average", 1.5),
        ("dropout", 1.0),
        ("seed", -1),
        ("size", 0),
    ],
)
def test_senseless_numbers_are_refused(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be"):
        RunConfig(**{name: value})


@pytest.mark.parametrize(
    "options", [{"memory_momentum": 7.0}, {"balance": -1.0}, {"patience": 0}, {"weight": -2.0}]
)
def test_senseless_options_leave_no_folder(tmp_path, on_disk, options):
    with pytest.raises(
        UsageError, match=f"--method.{next(iter(options)).replace('_', '-')} must be"
    ):
        train(RunConfig(**on_disk, epochs=2), AdaGC(**options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_device_that_is_not_there_leaves_no_folder(tmp_path, on_disk):
    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(UsageError, match="--accelerator cuda cannot be used here"):
        train(RunConfig(**on_disk, accelerator="cuda"), AssumeNegative(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "option"),
    [("aid", {"truth": "x"}), ("synthetic", {"root": "x"}), ("array", {"size": 9})],
)
def test_options_that_mean_nothing_are_refused(kind, option):
    where = {} if kind == "synthetic" else {"root": "x"}
    with pytest.raises(UsageError, match="means nothing"):
        open_configured(RunConfig(data=kind, **{**where, **option}))


def test_plain_layers_see_the_mean_of_every_image(tmp_path, pictures, label_file):
    """Pooled once, not in every step; the class-map head still sees positions."""
    settings = {"labels": str(label_file), "epochs": 1, "backbone": "mlp", "weights": "none"}
    run = train(RunConfig(**settings), AssumeNegative(), tmp_path / "run", collection=pictures)
    model = load_model(run.folder).eval()
    assert model.spec.shape == (3,)
    rows = pictures.splits["test"]
    means = torch.from_numpy(pictures.images.gather(rows)).float().mean(dim=(2, 3))
    with torch.no_grad():
        wanted = model(means).sigmoid().numpy()
    np.testing.assert_allclose(predictions_of(run)["network-last"], wanted, rtol=1e-5, atol=1e-6)
    again = evaluate(run, collection=pictures)
    assert again.to_dict() == run.read_json("scores.json")
    boosted = train(RunConfig(**settings), BoostLU(), tmp_path / "map", collection=pictures)
    assert load_model(boosted.folder).spec.shape == (3, 6, 6)

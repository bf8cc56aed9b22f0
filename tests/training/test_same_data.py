"""A run is tested, shown and continued with the images and labels that it was trained with."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from adagc.cli import main
from adagc.errors import DataError, UsageError
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.methods.assume_negative import AssumeNegative
from adagc.report import write_report
from adagc.training import contents, inputs
from adagc.training.config import RunConfig
from adagc.training.experiment import evaluate, predictions_of, train
from adagc.training.runs import Run
from adagc.training.scoring import images_of
from conftest import CLASSES, make_collection, make_labels

SETTINGS = {"epochs": 2, "batch_size": 8, "hidden": 8, "accelerator": "cpu", "absent": "skip"}


@pytest.fixture
def arrays(tmp_path) -> Path:
    """A folder with embeddings, single labels and clean labels."""
    collection = make_collection()
    np.save(tmp_path / "embeddings.npy", collection.images.gather(np.arange(64)))
    make_labels(collection, tmp_path / "one.csv")
    table = LabelTable(collection.images.names, CLASSES, collection.truth.astype(np.int8))
    write_labels(table, tmp_path / "truth.csv")
    return tmp_path


@pytest.fixture
def run(arrays) -> Run:
    config = RunConfig(
        data="array", root=str(arrays / "embeddings.npy"), labels=str(arrays / "one.csv"),
        truth=str(arrays / "truth.csv"), **SETTINGS,
    )  # fmt: skip
    return train(config, AssumeNegative(), arrays / "run")


def moved(arrays: Path, change=lambda values: values) -> Path:
    """The data in another place, with other values."""
    place = arrays / "elsewhere"
    place.mkdir()
    np.save(place / "embeddings.npy", change(np.load(arrays / "embeddings.npy")))
    return place / "embeddings.npy"


def files(run: Run) -> dict[str, bytes]:
    paths = (path for path in run.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in paths}


def test_the_same_rows_in_another_place_give_the_same_scores(arrays, run):
    before = run.read_json("scores.json")
    assert evaluate(run, root=str(moved(arrays))).to_dict() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[::-1],  # the same values, in another order
        lambda values: values + np.float32(1e-3),
        lambda values: np.random.default_rng(5).normal(size=values.shape).astype(np.float32),
    ],
    ids=["reversed", "shifted", "other"],
)
def test_other_rows_of_the_same_shape_are_refused_unless_told_otherwise(
    arrays, run, change, capsys
):
    root, before = str(moved(arrays, change)), files(run)
    assert main(["evaluate", str(run.folder), "--root", root]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1] == (
        f"adagc evaluate: the test images are not those that {run} was trained with (their content"
        " differs): give the same ones, or add --other-data to use these"
    )
    assert files(run) == before
    assert main(["evaluate", str(run.folder), "--root", root, "--other-data"]) == 0
    assert "AN: test, clean labels of other data than the run's" in capsys.readouterr().out
    after = files(run)
    added = {"scores-other.json", "predictions-other.safetensors"}
    assert after.keys() - before.keys() == added
    assert {name: after[name] for name in before} == before  # the scores of the run are its own
    assert json.loads(after["scores-other.json"])["other_data"] is True
    assert "other_data" not in json.loads(after["scores.json"])


def test_other_clean_labels_are_refused_unless_told_otherwise(arrays, run, capsys):
    clean = read_labels(arrays / "truth.csv", kind="multi")
    values = clean.values.copy()
    values[:, 0] = 1 - values[:, 0]
    other = arrays / "other.csv"
    write_labels(dataclasses.replace(clean, values=values), other)
    with pytest.raises(DataError, match="the clean labels of test images are not those that"):
        evaluate(run, truth=str(other))
    assert evaluate(run, truth=str(other), other_data=True).other_data
    # The same labels in another form are the same labels.
    order = [2, 0, 3, 1]
    swapped = LabelTable(clean.images, tuple(CLASSES[i] for i in order), clean.values[:, order])
    write_labels(swapped, arrays / "swapped.csv", format="list")
    assert evaluate(run, truth=str(arrays / "swapped.csv")).to_dict() == run.read_json(
        "scores.json"
    )


def test_a_run_is_tested_where_its_label_file_is_not(arrays, run):
    (arrays / "one.csv").unlink()
    assert evaluate(run).to_dict() == run.read_json("scores.json")


def test_a_run_without_clean_labels_takes_any(arrays):
    config = RunConfig(
        data="array",
        root=str(arrays / "embeddings.npy"),
        labels=str(arrays / "one.csv"),
        **SETTINGS,
    )
    run = train(config, AssumeNegative(), arrays / "blind")
    assert "clean labels of test images" not in run.inputs
    rows = inputs.rows_of_split(run, inputs.open_configured(config), "val")
    assert evaluate(run, split="val", truth=str(arrays / "truth.csv")).images == len(rows)


def test_data_with_other_names_can_be_scored_too(arrays, run):
    place = arrays / "new"
    place.mkdir()
    collection = make_collection(count=40, seed=3)
    np.save(place / "embeddings.npy", collection.images.gather(np.arange(40)))
    names = tuple(f"new{i}" for i in range(40))
    (place / "names.txt").write_text("\n".join(names))
    write_labels(LabelTable(names, CLASSES, collection.truth.astype(np.int8)), place / "truth.csv")
    words = {"root": str(place), "truth": str(place / "truth.csv")}
    with pytest.raises(DataError, match="test images of this run are missing, for example"):
        evaluate(run, **words)
    scored = evaluate(run, **words, other_data=True)
    assert scored.images == 8  # the fifth of them that is for testing
    with pytest.raises(UsageError, match="no split 'nowhere': choose from train, val, test"):
        evaluate(run, split="nowhere", **words, other_data=True)


def test_a_run_of_an_older_version_has_nothing_to_compare(arrays, run):
    (run.folder / "inputs.json").write_text("{}")
    assert evaluate(run, root=str(moved(arrays, lambda values: values[::-1]))).images > 0
    (run.folder / "inputs.json").unlink()
    assert evaluate(run).images > 0


def test_a_resumed_run_insists_on_the_same_images(arrays, run):
    collection = inputs.open_configured(inputs.config_of(run))
    values = collection.images.gather(np.arange(64))
    other = dataclasses.replace(collection, images=ArrayScenes(values[::-1].copy()))
    config = inputs.config_of(run)
    with pytest.raises(UsageError, match=r"the content of test images has changed since .*run was"):
        train(config, AssumeNegative(), run.folder, resume=True, collection=other)


def test_bad_values_that_are_mended_before_an_epoch_is_finished(arrays):
    """What the error about them advises works: mend the file, then the same command."""
    path = arrays / "embeddings.npy"
    good = np.load(path)
    bad = good.copy()
    bad[:20] = np.inf
    np.save(path, bad)
    config = RunConfig(
        data="array", root=str(path), labels=str(arrays / "one.csv"), clip=1.0,
        truth=str(arrays / "truth.csv"), **SETTINGS,
    )  # fmt: skip
    with pytest.raises(Exception, match="finite"):
        train(config, AssumeNegative(), arrays / "run")
    np.save(path, good)
    again = train(config, AssumeNegative(), arrays / "run", resume=True)
    fresh = train(config, AssumeNegative(), arrays / "fresh")
    assert again.read_json("scores.json") == fresh.read_json("scores.json")
    assert again.inputs == fresh.inputs
    np.save(path, good + 1)
    with pytest.raises(UsageError, match="restore it, or train anew with another --out"):
        train(config, AssumeNegative(), arrays / "run", resume=True)


def test_large_data_is_compared_by_evenly_spaced_images(monkeypatch):
    images = make_collection("images").images
    monkeypatch.setattr(contents, "_MOST", 10 * 3 * 6 * 6)
    read = []
    monkeypatch.setattr(
        images, "gather", lambda rows, of=images.gather: read.extend(rows.tolist()) or of(rows)
    )
    rows = np.arange(4, 64)
    first = contents.images_digest(images, rows)
    assert read == list(range(4, 64, 6))
    assert contents.images_digest(images, rows) == first
    assert len(read) == 10  # read once as long as the images are open
    assert contents.images_digest(images, rows[1:]) != first


# -- a folder of images, and the report ------------------------------------------------------


@pytest.fixture
def pictures(tmp_path) -> Run:
    rng = np.random.default_rng(0)
    truth = make_collection().truth[:60]
    names = [f"p{i:02d}" for i in range(60)]
    (tmp_path / "photos").mkdir()
    for name, labels in zip(names, truth, strict=True):
        pixels = rng.integers(0, 60, (16, 16, 3)) + 60 * labels[:3]
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{name}.png")
    table = LabelTable(tuple(names), CLASSES, truth.astype(np.int8))
    write_labels(table, tmp_path / "truth.csv")
    config = RunConfig(
        data="folder", root=str(tmp_path / "photos"), truth=str(tmp_path / "truth.csv"),
        scheme="random", backbone="test_resnet", cache=str(tmp_path / "cache"), **SETTINGS,
    )  # fmt: skip
    return train(config, AssumeNegative(), tmp_path / "run")


def test_pictures_that_changed_under_their_names(pictures, tmp_path, capsys):
    first = write_report(pictures, out=tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<img" in first
    photos = tmp_path / "photos"
    shutil.copytree(photos, tmp_path / "same")
    for i in range(60):
        shutil.copy(tmp_path / "same" / f"p{i:02d}.png", photos / f"p{59 - i:02d}.png")
    with pytest.raises(DataError, match="the test images are not those"):
        evaluate(pictures)
    words = ["report", str(pictures.folder), "--out", str(tmp_path / "b.html")]
    assert main(words) == 0
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "The pictures could not be shown: the " in text
    assert "<img" not in text
    assert "could not be shown" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--other-data"]) == 0
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<img" in text
    assert "These may be other images than those of the run" in text
    assert main([*words, "--root", str(tmp_path / "same")]) == 0
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert text.replace("same, 60 images", "photos, 60 images") == first


# -- predictions with names ------------------------------------------------------------------


def test_predictions_say_which_images_and_classes_they_are_of(arrays, run):
    with safe_open(run.path("predictions.safetensors"), framework="np") as file:
        about = json.loads(file.metadata()["adagc"])
    split = [line.rpartition(",") for line in run.path("split.csv").read_text().splitlines()]
    assert about["images"] == [name for name, _, part in split if part == "test"]
    assert about["classes"] == list(CLASSES)
    assert (about["split"], about["method"], about["format"]) == ("test", "AN", 1)
    assert images_of(run) == tuple(about["images"])
    assert len(predictions_of(run)["network-last"]) == len(about["images"])


def test_predictions_of_an_older_version_have_no_names():
    folder = Path(__file__).parents[1] / "fixtures" / "first-format" / "finished"
    old = Run.open(folder)
    assert images_of(old) is None
    assert predictions_of(old)["network-last"].shape[1] == len(old.scores.classes)


# -- damaged files name the right remedy -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("scores.json", "run  adagc evaluate {run}"),
        ("scores-val.json", "run  adagc evaluate {run}"),
        ("environment.json", "copy it again, or delete it"),
        ("inputs.json", "copy it again, or delete it"),
        ("labels.json", "run adagc train again with another --out"),
    ],
)
def test_the_remedy_for_a_damaged_file(run, name, remedy):
    run.path(name).write_text("{")
    with pytest.raises(Exception, match="is damaged") as caught:
        run.read_json(name)
    assert remedy.format(run=run) in str(caught.value)


def test_inputs_that_are_no_table(run):
    run.path("inputs.json").write_text("[]")
    with pytest.raises(Exception, match=r"inputs\.json is damaged: copy it again, or delete it"):
        evaluate(run)


def test_a_damaged_split_is_one_line(run):
    run.path("split.csv").write_text("image,split\na,b,c\n")
    with pytest.raises(DataError, match=r"split\.csv is damaged .*copy the run folder"):
        evaluate(run)
    run.path("split.csv").write_text("image,split\n00000,train\n00001,tr")  # cut off
    with pytest.raises(DataError, match=r"split\.csv is damaged \('tr' is no split\): copy"):
        evaluate(run)
    run.path("split.csv").unlink()
    with pytest.raises(DataError, match=r"split\.csv is missing: copy the run folder again"):
        evaluate(run)

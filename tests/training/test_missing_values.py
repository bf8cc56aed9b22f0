"""Missing values from the file to the prediction: masked, filled with the mean, recorded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch

from adagc.augment import strong_view
from adagc.cli import main
from adagc.datasets.assemble import collect
from adagc.errors import DataError, LabelFileError, TrainingError
from adagc.images.array import ArrayScenes
from adagc.inference import predict
from adagc.labels import LabelTable, write_labels
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.lac import LAC
from adagc.models import load_model, read_description
from adagc.ranks import mean_of_bands
from adagc.training.batches import Batches
from adagc.training.config import RunConfig
from adagc.training.experiment import evaluate, train
from adagc.training.runs import Run
from conftest import CLASSES, make_classifier, make_collection, make_labels

QUICK = {"epochs": 2, "batch_size": 8, "weights": "none", "accelerator": "cpu", "hidden": 8}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> dict[str, str]:
    """A folder of 16-bit images in which -9999 means nothing, with labels and clean labels."""
    collection = make_collection("images")
    values = collection.images.gather(np.arange(64)).astype(np.int16) * 10
    values = np.kron(values, np.ones((1, 1, 6, 6), np.int16))  # 36 x 36 pixels
    values[::3, 1, :10, 20:] = -9999
    values[5] = -9999
    (tmp_path / "images").mkdir()
    for name, image in zip(collection.images.names, values, strict=True):
        np.save(tmp_path / "images" / f"{name}.npy", image)
    np.save(tmp_path / "array.npy", values)
    truth = LabelTable(collection.images.names, CLASSES, collection.truth.astype(np.int8))
    write_labels(truth, tmp_path / "truth.csv")
    make_labels(collection, tmp_path / "labels.csv")
    return {"labels": str(tmp_path / "labels.csv"), "truth": str(tmp_path / "truth.csv")}


def settings(tmp_path: Path, folder: dict[str, str], data: str, **more) -> RunConfig:
    root = tmp_path / ("images" if data == "folder" else "array.npy")
    return RunConfig(**{**QUICK, **folder, "data": data, "root": str(root),
                        "backbone": "test_resnet", **more})  # fmt: skip


# -- the network -------------------------------------------------------------------------------


def test_the_network_puts_the_mean_in_place_of_missing_values():
    network = make_classifier((3, 4, 4), backbone="linear")
    network.normalise.mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    network.normalise.std.copy_(torch.tensor([2.0, 2.0, 2.0]))
    x = torch.randn(5, 3, 4, 4)
    gaps = torch.rand(x.shape) < 0.3
    mean = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1).expand_as(x)
    wanted = network(torch.where(gaps, mean, x))
    torch.testing.assert_close(network(x.masked_fill(gaps, torch.nan)), wanted)
    raw = x.masked_fill(gaps, -9999.0)
    assert not torch.allclose(network(raw), wanted)
    network.normalise.nodata = -9999.0
    torch.testing.assert_close(network(raw), wanted)


def test_infinite_values_stay_infinite():
    network = make_classifier((6,), backbone="linear")
    assert not network(torch.full((2, 6), torch.inf)).isfinite().any()


def test_values_without_gaps_are_normalised_as_ever():
    network = make_classifier((3, 4, 4), backbone="linear")
    x = torch.randn(5, 3, 4, 4) * 100
    before = x.clone()
    shape = (1, -1, 1, 1)
    mean, std = network.normalise.mean.view(shape), network.normalise.std.view(shape)
    assert torch.equal(network.normalise(x), (x - mean) / std)
    assert torch.equal(x, before)


# -- views and mixtures ------------------------------------------------------------------------


def test_strong_views_leave_gaps_out_of_the_mean():
    x = torch.randn(6, 3, 16, 16) + 5
    x[2, 1, :8] = torch.nan
    x[:, 2] = torch.nan
    mean = mean_of_bands(x)
    assert mean[1].item() == pytest.approx(x[:, 1][~x[:, 1].isnan()].mean().item(), rel=1e-5)
    assert mean[2] == 0
    assert torch.equal(mean[:1], x[:, :1].mean(dim=(0, 2, 3)))
    view = strong_view(x, torch.ones(3), torch.Generator().manual_seed(0))
    assert view[:, :2].isnan().float().mean() < 0.2
    assert not view[:, 0].isnan().any()


@pytest.mark.parametrize("method", [AdaGC(trigger_epoch=1), LAC()])
def test_methods_that_mix_and_change_images_train_on_gaps(method, tmp_path, folder):
    config = settings(tmp_path, folder, "array", nodata=-9999, epochs=3)
    run = train(config, method, tmp_path / "run")
    losses = [value for line in run.history for value in line.losses.values()]
    assert np.isfinite(losses).all()
    assert all(value.isfinite().all() for value in run.model().state_dict().values())


# -- a whole run -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["folder", "array"])
def test_a_named_number_means_the_same_as_nan(data, tmp_path, folder, caplog):
    """The run with --nodata has the weights of a run on images in which NaN is written."""
    with caplog.at_level("INFO", "adagc"):
        marked = train(settings(tmp_path, folder, data, nodata=-9999), AssumeNegative())
    assert any("23 of 64 images have missing values" in line for line in caplog.messages)
    for path in [*(tmp_path / "images").iterdir(), tmp_path / "array.npy"]:
        values = np.load(path).astype(np.float32)
        values[values == -9999] = np.nan
        np.save(path, values)
    written = train(settings(tmp_path, folder, data), AssumeNegative())
    one, two = marked.model().state_dict(), written.model().state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    mean = marked.model().normalise.mean
    assert (mean > 800).all()  # -9999 is not in it
    for name, values in marked.predictions.items():
        np.testing.assert_array_equal(values, written.predictions[name])


def test_the_number_is_recorded_and_used_again(tmp_path, folder):
    config = settings(tmp_path, folder, "folder", nodata=-9999)
    run = train(config, AssumeNegative(), tmp_path / "run")
    assert run.config["nodata"] == -9999
    assert read_description(run.folder).nodata == -9999
    first = run.predictions["network-last"]
    evaluate(Run.open(run.folder))
    np.testing.assert_array_equal(run.predictions["network-last"], first)
    # Later predictions of raw values need no other knowledge than the model's own.
    raw = ArrayScenes(np.load(tmp_path / "array.npy"))
    rows = [raw.names.index(name) for name in _test_names(run)]
    found = predict(load_model(run.folder), raw, np.array(rows))
    np.testing.assert_allclose(found, first, rtol=1e-5, atol=1e-6)


def _test_names(run: Run) -> list[str]:
    lines = run.path("split.csv").read_text().splitlines()[1:]
    return [name for name, part in (line.split(",") for line in lines) if part == "test"]


def test_another_number_is_another_run(tmp_path, folder, capsys):
    words = ["train", "--data", "array", "--root", str(tmp_path / "array.npy"),
             "--labels", folder["labels"], "--truth", folder["truth"], "--method", "AN",
             "--backbone", "test_resnet", "--weights", "none", "--epochs", "1",
             "--out", str(tmp_path / "run"), "--report", "false"]  # fmt: skip
    assert main([*words, "--nodata", "-9999"]) == 0
    assert main([*words, "--nodata", "-1", "--resume"]) == 2
    assert "nodata = -9999.0" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 2
    assert main([*words, "--nodata", "-9.999e3", "--resume"]) == 0
    assert main([*words[:-4], "--out", str(tmp_path / "other"), "--nodata", "inf"]) == 2
    assert not (tmp_path / "other").exists()


def test_a_number_that_a_tiff_names_needs_no_option(tmp_path, folder):
    for path in (tmp_path / "images").iterdir():
        tifffile.imwrite(
            path.with_suffix(".tif"), np.load(path), photometric="minisblack",
            extratags=[(42113, "s", 0, "-9999", True)],
        )  # fmt: skip
        path.unlink()
    run = train(settings(tmp_path, folder, "folder"), AssumeNegative())
    assert (run.model().normalise.mean > 800).all()


# -- what is said ------------------------------------------------------------------------------


def test_infinite_values_are_named_before_anything_is_written(tmp_path, folder):
    values = np.load(tmp_path / "array.npy").astype(np.float32)
    values[[7, 9, 11, 13], 0, 0, 0] = np.inf
    np.save(tmp_path / "array.npy", values)
    config = settings(tmp_path, folder, "array")
    said = r"^4 of 64 images have infinite values, or values beyond 3.4e\+38 \(000\d\d"
    with pytest.raises(DataError, match=said) as error:
        train(config, AssumeNegative(), tmp_path / "run")
    assert "repair" in str(error.value)
    assert not (tmp_path / "run").exists()
    np.save(tmp_path / "array.npy", np.where(np.isinf(values), np.nan, values))
    train(config, AssumeNegative(), tmp_path / "run")  # the same command, after the repair


def test_a_batch_that_breaks_names_its_images_first(monkeypatch, tmp_path):
    """Images that no check has seen: of a plug-in, say, that returns something else later."""
    collection = make_collection("embeddings")
    labels = make_labels(collection, tmp_path / "labels.csv")
    monkeypatch.setattr(
        Batches, "_gather", lambda self, index: torch.full((len(index), 6), torch.inf)
    )
    with pytest.raises(TrainingError) as error:
        train(RunConfig(**QUICK, labels=str(labels)), AssumeNegative(), collection=collection)
    message = str(error.value)
    assert message.split(":")[0].count(",") == 3  # three names and dots
    assert message.startswith("000")
    assert "--resume" not in message
    assert "new run" in message
    assert len(message) < 250


def test_images_without_gaps_are_not_mentioned(tmp_path, caplog):
    collection = make_collection("images")
    labels = make_labels(collection, tmp_path / "labels.csv")
    with caplog.at_level("INFO", "adagc"):
        train(
            RunConfig(**QUICK, labels=str(labels), backbone="test_resnet"),
            AssumeNegative(),
            collection=collection,
        )
    assert not any("missing" in line for line in caplog.messages)


def test_a_backbone_for_embeddings_on_images_is_mentioned(tmp_path, caplog):
    collection = make_collection("images")
    labels = str(make_labels(collection, tmp_path / "labels.csv"))
    config = RunConfig(**{**QUICK, "labels": labels, "backbone": "mlp", "epochs": 1})
    with caplog.at_level("WARNING", "adagc"):
        train(config, AssumeNegative(), collection=collection)
    assert sum("backbone mlp is made for embeddings" in line for line in caplog.messages) == 1
    caplog.clear()
    rng = np.random.default_rng(0)
    maps = collect(
        ArrayScenes(rng.normal(size=(64, 40, 3, 3)).astype(np.float32)), labels=Path(labels)
    )
    with caplog.at_level("WARNING", "adagc"):
        train(config, AssumeNegative(), collection=maps)
    assert not any("backbone" in line for line in caplog.messages)


def test_labels_given_apart_may_name_an_image_that_was_left_out(tmp_path):
    collection = dataclasses.replace(make_collection(), left_out=("lost/image",))
    labels = make_labels(collection, tmp_path / "labels.csv")
    labels.write_text(labels.read_text() + "image.png,water\n")
    run = train(RunConfig(**QUICK, labels=str(labels)), AssumeNegative(), collection=collection)
    assert run.labels.images.train == 24
    labels.write_text(labels.read_text() + "other.png,water\n")
    with pytest.raises(LabelFileError, match=r"'other\.png' is not among the 64 images"):
        train(RunConfig(**QUICK, labels=str(labels)), AssumeNegative(), collection=collection)


def test_inspect_takes_the_number_too(tmp_path, folder, capsys):
    assert main(["inspect", str(tmp_path / "images"), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert [suspect["value"] for suspect in before["suspects"]] == [-9999]
    assert main(["inspect", str(tmp_path / "images"), "--nodata", "-9999", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["suspects"] == []
    assert len(after["missing"]) == 23


def test_unreadable_images_are_skipped_as_the_error_recommends(tmp_path, folder, capsys):
    (tmp_path / "images" / "00003.npy").write_bytes(b"broken")
    words = ["train", "--root", str(tmp_path / "images"), "--method", "AN", "--epochs", "1",
             "--labels", folder["labels"], "--truth", folder["truth"], "--nodata", "-9999",
             "--backbone", "test_resnet", "--weights", "none",
             "--out", str(tmp_path / "run"), "--report", "false"]  # fmt: skip
    assert main(words) == 1
    assert "--skip-unreadable" in capsys.readouterr().err
    assert main([*words, "--skip-unreadable", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scores"]["images"] > 0
    assert "1 unreadable images were left out: 00003" in " ".join(printed.err.split())

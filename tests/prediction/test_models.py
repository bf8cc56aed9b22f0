"""A run and what is exported of it predict the same, and start-up is quick without torch."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from adagc import predict
from adagc.training.runs import Run
from conftest import make_collection
from planted import write_model, write_scene
from scripted import train_scripted


@pytest.fixture(scope="module")
def photos_run(tmp_path_factory) -> Run:
    """A network trained for an epoch on files of 40 pixels, which it sees at 32."""
    from adagc.methods import find
    from adagc.training.config import RunConfig
    from adagc.training.experiment import train

    place = tmp_path_factory.mktemp("photos")
    rng, lines = np.random.default_rng(0), ["image,label"]
    (place / "photos").mkdir()
    for number in range(40):
        values = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(values).save(place / "photos" / f"{number}.png")
        lines.append(f"{number},{'ab'[number % 2]}")
    (place / "labels.csv").write_text("\n".join(lines))
    config = RunConfig(
        root=str(place / "photos"), labels=str(place / "labels.csv"), size=32, epochs=1,
        backbone="test_resnet", weights="none", cache=str(place / "cache"),
    )  # fmt: skip
    return train(config, find("AN")(), place / "run")


def test_a_run_predicts_what_its_network_predicts(tmp_path):
    run = train_scripted(tmp_path / "run")
    collection = make_collection()
    rows = np.arange(len(collection.images.names))
    values = collection.images.gather(rows).astype(np.float32)
    found = predict(run.folder, values)
    import torch

    with torch.no_grad():
        expected = Run.open(run.folder).model().probabilities(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    np.testing.assert_array_equal(found.thresholds, run.model().thresholds.numpy())


def test_a_run_and_its_export_agree_on_a_scene(tmp_path, photos_run):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from adagc.deploy import export

    export(photos_run, tmp_path / "exported")
    values = np.random.default_rng(0).integers(0, 255, (3, 130, 210), dtype=np.uint8)
    scene = write_scene(tmp_path / "scene.tif", values, bands=())
    first, second = predict(photos_run.folder, scene), predict(tmp_path / "exported", scene)
    assert len(first.names) == 4 * 6
    np.testing.assert_array_equal(first.places, second.places)
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-5)
    np.testing.assert_array_equal(first.thresholds, second.thresholds)


def test_windows_are_as_large_as_the_images_of_training(tmp_path, photos_run):
    assert photos_run.made.trained_on == 40
    values = np.random.default_rng(1).integers(0, 255, (3, 80, 125), dtype=np.uint8)
    scene = write_scene(tmp_path / "scene.tif", values, bands=())
    found = predict(photos_run.folder, scene)
    # As large as in training, then resized to 32 pixels as there; the last ones are shifted in.
    assert found.places[:4].tolist() == [[0, 0], [0, 40], [0, 80], [0, 85]]
    Image.fromarray(np.moveaxis(values[:, :40, 40:80], 0, -1)).save(tmp_path / "one.png")
    (one,) = predict(photos_run.folder, tmp_path / "one.png").probabilities
    np.testing.assert_allclose(found.probabilities[1], one, atol=1e-6)
    # A file of that size is an image like those of training, also if it has coordinates.
    patch = predict(
        photos_run.folder, write_scene(tmp_path / "patch.tif", values[:, :40, 40:80], bands=())
    )
    assert patch.places is None
    np.testing.assert_allclose(patch.probabilities[0], one, atol=1e-6)


def test_an_exported_model_needs_no_torch_and_little_time(tmp_path):
    model = write_model(tmp_path / "model", bands=("red", "green", "blue"))
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(tmp_path / "one.png")
    code = (
        "import sys; from adagc.cli import main;"
        "code = main(sys.argv[1:]);"
        "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr);"
        "raise SystemExit(code)"
    )
    words = ["predict", str(model), str(tmp_path / "one.png"), "--out", str(tmp_path / "one.csv")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    heavy = {"torch", "timm", "torchvision", "lightning_fabric", "rasterio", "pyarrow", "geopandas"}
    assert not loaded & heavy
    assert "onnxruntime" in loaded
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 3, f"{used:.2f} s of CPU"
    assert (tmp_path / "one.csv").read_text().startswith("image,labels,p_field")

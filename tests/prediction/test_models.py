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
from adagc.prediction.models import RunModel, open_model
from adagc.training.runs import Run
from conftest import make_classifier, make_collection
from planted import write_model, write_scene
from scripted import train_scripted


@pytest.fixture
def pictures_run(tmp_path):
    """A model of images in the folder of a run, with thresholds of its own."""
    from adagc.models import save_model

    classifier = make_classifier((3, 32, 32), backbone="test_resnet")
    classifier.set_thresholds(np.linspace(0.2, 0.8, len(classifier.spec.classes)))
    save_model(tmp_path / "run", classifier.eval())
    return tmp_path / "run", classifier


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


def test_a_run_and_its_export_agree_on_a_scene(tmp_path, pictures_run):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from adagc._version import __version__
    from adagc.deploy import ModelFacts
    from adagc.deploy.graph import Deployed, probe, to_onnx

    folder, classifier = pictures_run
    spec = classifier.spec
    facts = ModelFacts(
        spec.classes, spec.bands, spec.shape, tuple(classifier.short_thresholds()), "half", None,
        "AN", "", __version__,
    )  # fmt: skip
    import torch

    example = torch.from_numpy(probe(classifier, 2, seed=0))
    (tmp_path / "exported").mkdir()
    content = to_onnx(Deployed(classifier).eval(), example, facts.to_metadata())
    (tmp_path / "exported" / "model.onnx").write_bytes(content)
    bands, side = spec.shape[0], spec.shape[1]
    values = np.random.default_rng(0).random((bands, 3 * side, 4 * side)).astype(np.float32)
    scene = write_scene(tmp_path / "scene.tif", values, bands=spec.bands)
    first, second = predict(folder, scene), predict(tmp_path / "exported", scene)
    assert len(first.names) == 12
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-5)
    np.testing.assert_array_equal(first.thresholds, second.thresholds)
    with torch.no_grad():
        patches = torch.from_numpy(values).unfold(1, side, side).unfold(2, side, side)
        patches = patches.permute(1, 2, 0, 3, 4).reshape(-1, *spec.shape)
        expected = classifier.eval().probabilities(patches).numpy()
    np.testing.assert_allclose(first.probabilities, expected, atol=1e-6)
    assert isinstance(open_model(folder), RunModel)


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

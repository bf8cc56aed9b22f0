"""A model for the QGIS plug-in Deepness. QGIS is not here: its contract stands in for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from adagc.deploy import ModelFacts
from adagc.deploy.deepness import (
    check_suited,
    deepness_difference,
    metadata,
    to_deepness,
)
from adagc.errors import UsageError
from adagc.models import ModelSpec, build, load_model

pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
Regressor = pytest.importorskip("deepness_contract").Regressor

CONTRACT = Path(__file__).with_name("deepness_contract.py")


def tiles(dtype: str, bands: int, size: int, count: int = 3) -> np.ndarray:
    """Tiles as a layer gives them: (N, S, S, bands)."""
    top = {"uint8": 256, "uint16": 65536}.get(dtype, 4000)
    values = np.random.default_rng(1).integers(0, top, size=(count, size, size, bands))
    return values.astype(dtype)


def ours(classifier, given: np.ndarray) -> np.ndarray:
    values = torch.from_numpy(given.astype(np.float32)).permute(0, 3, 1, 2)
    with torch.no_grad():
        return classifier.probabilities(values).numpy()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
def test_the_plug_in_draws_our_probabilities(small_run, exported, dtype):
    model = Regressor(exported.folder / "deepness.onnx")
    classifier = load_model(small_run.folder)
    given = tiles(dtype, 14, 16)
    maps = model.maps(given)
    assert maps.shape == (19, 3, 16, 16)
    assert (maps == maps[:, :, :1, :1]).all()
    np.testing.assert_allclose(maps[:, :, 0, 0].T, ours(classifier, given), atol=1e-5)
    more = np.concatenate([given, given[..., :1]], axis=-1)  # a layer with a band too many
    np.testing.assert_array_equal(model.maps(more), maps)


def test_the_plug_in_reads_what_it_needs(exported):
    model = Regressor(exported.folder / "deepness.onnx")
    assert model.kind == "Regressor"
    assert model.tile_size == model.tiles_size == 16
    assert [name for (name,) in model.names][:2] == [
        "Urban fabric",
        "Industrial or commercial units",
    ]
    assert model.input.shape == ["N", 14, 16, 16]
    shapes = [output.shape for output in model.session.get_outputs()]
    assert shapes == [["N", 1, 16, 16]] * 19
    about = model.session.get_modelmeta().custom_metadata_map
    assert "estimates" in json.loads(about["thresholds_are"])


def test_older_runtimes_know_its_version(exported):
    read = onnx.load(exported.folder / "deepness.onnx")
    assert read.ir_version <= 9
    assert [(one.domain, one.version <= 20) for one in read.opset_import] == [("", True)]


@pytest.mark.parametrize("nodata", [0.0, 255.0, 65535.0, -9999.0])
def test_a_missing_value_is_known_by_its_number_although_it_was_divided(nodata):
    spec = ModelSpec("linear", (2, 4, 4), ("a", "b"), ("x", "y"))
    classifier = build(spec, seed=0, mean=[9.0, 900.0], std=[5.0, 70.0], nodata=nodata).eval()
    facts = ModelFacts(
        spec.classes, spec.bands, spec.shape, (0.5, 0.5), "half", nodata, "AN", "", "1"
    )
    content = to_deepness(classifier, facts, torch.rand(2, 2, 4, 4) * 100)
    assert deepness_difference(content, classifier) <= 1e-5
    session = Regressor.__new__(Regressor)
    session.session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (session.input,), session.scaling = session.session.get_inputs(), 1.0
    # Every whole number of 16 bits comes back as it was.
    given = np.arange(2**16, dtype=np.int32).reshape(-1, 4, 4, 2)
    given[::50, 1, 1] = int(nodata)
    found = session.maps(given)[:, :, 0, 0].T
    np.testing.assert_allclose(found, ours(classifier, given), atol=1e-5)


def test_names_of_classes_can_be_names_of_files():
    facts = ModelFacts(("a/b", "c\\d"), ("x",), (1, 4, 4), (0.5, 0.5), "half", None, "AN", "", "1")
    assert json.loads(metadata(facts)["class_names"]) == [{"0": "a-b"}, {"0": "c-d"}]


@pytest.mark.parametrize(
    ("shape", "said"),
    [((7,), "takes embeddings"), ((1, 4, 6), "square images, and this model 4 x 6")],
)
def test_what_it_cannot_have_is_refused(shape, said):
    facts = ModelFacts(("a",), ("x",) * len(shape), shape, (0.5,), "half", None, "AN", "", "1")
    with pytest.raises(UsageError, match=said):
        check_suited(facts)


@pytest.mark.slow
@pytest.mark.system
def test_it_runs_with_the_onnxruntime_that_qgis_users_have(small_run, exported, tmp_path):
    """onnxruntime 1.17.0 needs numpy 1 and therefore an environment of its own."""
    place = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "onnxruntime==1.17.0", "numpy<2"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"onnxruntime 1.17.0 cannot be installed: {done.stderr.strip()[-200:]}")
    classifier = load_model(small_run.folder)
    cases = {dtype: tiles(dtype, 14, 16) for dtype in ("uint8", "uint16")}
    np.savez(tmp_path / "cases.npz", **cases)
    model = str(exported.folder / "deepness.onnx")
    command = [str(python), str(CONTRACT), model, str(tmp_path / "cases.npz")]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (told["version"], told["kind"]) == ("1.17.0", "Regressor")
    for dtype, given in cases.items():
        np.testing.assert_allclose(told["said"][dtype], ours(classifier, given), atol=1e-5)
    # The plain model, too.
    code = (
        "import json, sys, numpy as np, onnxruntime\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "images = np.load(sys.argv[2])['uint16'].astype('f4').transpose(0, 3, 1, 2)\n"
        "print(json.dumps(session.run(None, {'images': images})[0].tolist()))\n"
    )
    plain = [str(python), "-c", code, str(exported.folder / "model.onnx"), command[-1]]
    found = json.loads(subprocess.run(plain, capture_output=True, text=True, check=True).stdout)
    np.testing.assert_allclose(found, ours(classifier, cases["uint16"]), atol=1e-5)

"""An exported model is run without torch, and says no to what it cannot take."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import adagc
from adagc.deploy import ExportedModel
from adagc.errors import AdagcError, DataError, MissingExtraError, UsageError
from adagc.models import load_model

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "run_onnx.py"


def random_images(count: int, shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    values = np.random.default_rng(5).integers(0, 4000, size=(count, *shape))
    return values.astype(dtype)


def test_it_equals_our_network_on_a_thousand_images(small_run, onnx_file):
    ours, theirs = load_model(small_run.folder), ExportedModel(onnx_file)
    images = random_images(1000, theirs.shape)
    images[::7, 3, 2] = np.nan
    with torch.no_grad():
        wanted = torch.cat([ours.probabilities(x) for x in torch.from_numpy(images).split(100)])
    found = theirs.probabilities(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)
    assert found.std() > 0.01
    np.testing.assert_array_equal(theirs.decide(found), ours.decide(wanted).numpy())


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float64, ">i2", np.float16])
def test_values_of_any_type_are_converted(onnx_file, dtype):
    theirs = ExportedModel(onnx_file)
    images = random_images(3, theirs.shape).clip(0, 2000)
    found = theirs.probabilities(images.astype(dtype))
    np.testing.assert_array_equal(found, theirs.probabilities(images.astype(dtype).astype("f4")))


@pytest.mark.parametrize("size", [1, 3, 64])
def test_the_size_of_a_batch_changes_nothing(onnx_file, size):
    theirs = ExportedModel(onnx_file, threads=1)
    images = random_images(10, theirs.shape)
    found = theirs.probabilities(images, batch_size=size)
    np.testing.assert_allclose(found, theirs.probabilities(images), atol=1e-6)
    assert theirs.probabilities(images[:0]).shape == (0, len(theirs.classes))


def test_it_knows_what_our_model_knows(small_run, onnx_file):
    ours, theirs = load_model(small_run.folder), ExportedModel(onnx_file.parent)
    assert theirs.classes == ours.spec.classes
    assert theirs.bands == ours.spec.bands
    assert theirs.shape == ours.spec.shape
    assert theirs.nodata is None
    np.testing.assert_array_equal(theirs.thresholds, ours.thresholds.numpy())
    assert len(set(theirs.thresholds.tolist())) > 1
    assert theirs.facts.estimated
    assert "estimates" in theirs.facts.about_thresholds
    assert theirs.facts.method == "Auto"
    assert "generated" in theirs.facts.licence


def test_thresholds_decide_as_they_say(onnx_file):
    theirs = ExportedModel(onnx_file)
    at = np.tile(theirs.thresholds, (3, 1))
    at[1] = np.nextafter(at[1], 0)
    at[2] = np.nextafter(at[2], 1)
    assert theirs.decide(at).all(axis=1).tolist() == [True, False, True]


def test_it_can_be_sent_to_another_process(onnx_file):
    theirs = ExportedModel(onnx_file, threads=1)
    again = pickle.loads(pickle.dumps(theirs))
    images = random_images(2, theirs.shape)
    np.testing.assert_array_equal(again.probabilities(images), theirs.probabilities(images))
    assert again.threads == 1


def test_threads_follow_the_environment(onnx_file, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert ExportedModel(onnx_file).threads == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert ExportedModel(onnx_file).threads == 0


# -- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (np.s_[:, :3], "14, 16, 16.*VV, VH, B01.*got N x 3 x 16 x 16.*in this order"),
        (np.s_[:, :, :8], "got N x 14 x 8 x 16"),
        (np.s_[0], "got N x 16 x 16"),
    ],
)
def test_images_of_another_shape_are_refused(onnx_file, cut, said):
    theirs = ExportedModel(onnx_file)
    with pytest.raises(DataError, match=said):
        theirs.probabilities(random_images(2, theirs.shape)[cut])


def test_values_that_are_no_numbers_are_refused(onnx_file):
    theirs = ExportedModel(onnx_file)
    with pytest.raises(DataError, match="numbers, got values of type bool"):
        theirs.probabilities(random_images(2, theirs.shape, bool))


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_is_refused_and_not_run(tmp_path, protocol):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "run",)

    (tmp_path / "model.onnx").write_bytes(pickle.dumps(Bomb(), protocol))
    torch.save({"weights": torch.zeros(2)}, tmp_path / "model.pt2")
    for name in ("model.onnx", "model.pt2"):
        with pytest.raises(AdagcError, match="may contain code, and is not read"):
            ExportedModel(tmp_path / name)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"\x08\x08nonsense", b"hello", b"(I1\n."])
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(AdagcError, match="is not a model that onnxruntime") as error:
        ExportedModel(tmp_path)
    assert "\n" not in str(error.value)


def test_a_truncated_model_is_refused(tmp_path, onnx_file):
    (tmp_path / "model.onnx").write_bytes(onnx_file.read_bytes()[:-5000])
    with pytest.raises(AdagcError, match="is not a model that onnxruntime"):
        ExportedModel(tmp_path)


def test_a_place_without_a_model_is_a_wrong_command(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="does not exist: give a folder or file that adagc"):
            ExportedModel(place)


def changed(model: Path, place: Path, **values) -> Path:
    """A copy of the model with other metadata; None removes one."""
    read = onnx.load(model)
    kept = {entry.key: entry.value for entry in read.metadata_props}
    kept |= {key: json.dumps(value) for key, value in values.items()}
    del read.metadata_props[:]
    for key, value in kept.items():
        if values.get(key, 0) is not None:
            read.metadata_props.add(key=key, value=value)
    onnx.save(read, place / "model.onnx")
    return place


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"format": 99}, "exported by a newer adagc .format 99.: update"),
        ({"adagc": None}, "was not exported by adagc"),
        ({"thresholds": None}, "'thresholds' is missing.: export the run again"),
        ({"thresholds": [0.5]}, "are damaged"),
        ({"classes": 3}, "are damaged"),
    ],
)
def test_metadata_that_are_not_ours_are_refused(tmp_path, onnx_file, values, said):
    with pytest.raises(AdagcError, match=said):
        ExportedModel(changed(onnx_file, tmp_path, **values))


def test_without_onnxruntime_it_says_what_to_install(onnx_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime is not installed.*adagc\[onnx\]"):
        ExportedModel(onnx_file)


# -- without torch, and without us ---------------------------------------------------------------


def python(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_not_needed(onnx_file):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from adagc import ExportedModel\n"
        "model = ExportedModel(sys.argv[1])\n"
        "print(model.probabilities(np.ones((2, *model.shape), np.uint8)).shape)\n"
    )
    assert python(code, str(onnx_file)) == "(2, 19)\n"


def test_the_example_runs_where_neither_torch_nor_adagc_can_be_imported(tmp_path, onnx_file):
    theirs = ExportedModel(onnx_file)
    images = random_images(4, theirs.shape, np.uint16)
    np.save(tmp_path / "images.npy", images)
    shutil.copy(onnx_file, tmp_path / "model.onnx")
    code = (
        "import runpy, sys\n"
        "sys.modules['torch'] = sys.modules['adagc'] = None\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
    )
    said = python(code, str(EXAMPLE), str(tmp_path / "model.onnx"), str(tmp_path / "images.npy"))
    rows = [line.split("\t") for line in said.splitlines()]
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3]
    probabilities = theirs.probabilities(images)
    for (_, text), numbers, decided in zip(
        rows, probabilities, theirs.decide(probabilities), strict=True
    ):
        wanted = [f"{theirs.classes[c]} {numbers[c]:.2f}" for c in np.flatnonzero(decided)]
        assert text == ("; ".join(wanted) or "nothing")
    assert any(row[1] != "nothing" for row in rows)
    assert len(EXAMPLE.read_text().splitlines()) < 30


def test_both_names_can_be_imported_from_the_package():
    from adagc import deploy

    assert adagc.ExportedModel is ExportedModel
    assert adagc.export is deploy.export

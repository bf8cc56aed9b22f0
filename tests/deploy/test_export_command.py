"""adagc export writes a whole folder or nothing, and says what is wrong in one line."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from adagc.cli import main
from adagc.deploy import ExportedModel, checks, export
from adagc.errors import AdagcError, UsageError
from adagc.models import load_model
from adagc.models.backbones import create_network
from adagc.testing.tiny import make_collection
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from full_disk import FullDisk

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

ALL = {
    "model.onnx", "model.pt2", "backbone.safetensors", "deepness.onnx", "model.stac.json",
    "MODEL_CARD.md",
}  # fmt: skip
EMBEDDINGS = RunConfig(
    scheme="random", epochs=2, batch_size=8, hidden=8, average=0.9, accelerator="cpu",
    backbone="mlp", absent="skip",
)  # fmt: skip


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """A run on embeddings, whose export takes a second."""
    from adagc.methods.assume_negative import AssumeNegative

    place = tmp_path_factory.mktemp("embedded") / "run"
    return train(EMBEDDINGS, AssumeNegative(), place, collection=make_collection())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def failed(capsys, *words: str) -> str:
    """The line that a failed command prints."""
    assert main(["export", *map(str, words)]) != 0
    line, *rest = capsys.readouterr().err.strip().splitlines()[::-1]
    assert "Traceback" not in " ".join(rest)
    return line


# -- what is written -----------------------------------------------------------------------------


def test_all_formats_are_written_and_checked(exported):
    assert names(exported.folder) == ALL
    assert exported.differences.keys() == ALL - {"model.stac.json", "MODEL_CARD.md"}
    assert all(0 <= found <= checks.TOLERANCE for found in exported.differences.values())
    assert exported.sizes == {p.name: p.stat().st_size for p in exported.folder.iterdir()}


def test_torch_loads_the_program_without_us(small_run, exported, tmp_path):
    images = np.random.default_rng(0).normal(1000, 500, (3, 14, 16, 16)).astype(np.float32)
    np.save(tmp_path / "images.npy", images)
    code = (
        "import sys; sys.modules['adagc'] = sys.modules['timm'] = None\n"
        "import numpy as np, torch\n"
        "program = torch.export.load(sys.argv[1]).module()\n"
        "np.save(sys.argv[3], program(torch.from_numpy(np.load(sys.argv[2]))).numpy())\n"
    )
    files = (exported.folder / "model.pt2", tmp_path / "images.npy", tmp_path / "found.npy")
    subprocess.run([sys.executable, "-c", code, *map(str, files)], check=True)
    with torch.no_grad():
        wanted = load_model(small_run.folder).probabilities(torch.from_numpy(images))
    np.testing.assert_allclose(np.load(files[2]), wanted.numpy(), atol=1e-5)


def test_timm_takes_the_weights_of_the_backbone(small_run, exported):
    ours = load_model(small_run.folder)
    with safe_open(exported.folder / "backbone.safetensors", framework="pt") as file:
        about = file.metadata()
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 not a dict
    assert about["architecture"] == "test_resnet"
    assert about["bands"].split("\n") == list(ours.spec.bands)
    net = create_network("test_resnet", channels=14, size=(16, 16)).eval()
    net.load_state_dict(state)
    values = torch.randn(2, 14, 16, 16)
    mean, std = (torch.tensor(json.loads(about[name]))[:, None, None] for name in ("mean", "std"))
    with torch.no_grad():
        features = net.forward_features(values)
        torch.testing.assert_close(
            ours.feature_map(values * std + mean), features, atol=1e-4, rtol=1e-4
        )


def test_our_own_training_starts_from_the_weights_of_the_backbone(exported):
    from adagc.models import ModelSpec, build

    spec = ModelSpec("test_resnet", (14, 16, 16), ("a", "b"), ExportedModel(exported.folder).bands)
    made = build(spec, seed=3, weights=str(exported.folder / "backbone.safetensors"))
    with safe_open(exported.folder / "backbone.safetensors", framework="pt") as file:
        for name, value in made.backbone.net.named_parameters():
            assert torch.equal(value, file.get_tensor(name)), name


def test_the_command_prints_files_and_differences(embedded, tmp_path, capsys):
    out = tmp_path / "models" / "one"
    assert main(["export", str(embedded.folder), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "largest difference to our network" in said
    assert f"Folder: {out}" in said
    assert names(out) == ALL - {"deepness.onnx", "backbone.safetensors"}  # mlp is not timm's
    model = ExportedModel(out)
    images = make_collection().images.gather(np.arange(64))
    with torch.no_grad():
        wanted = load_model(embedded.folder).probabilities(torch.from_numpy(images).float())
    np.testing.assert_allclose(model.probabilities(images), wanted.numpy(), atol=1e-5)
    assert not model.facts.is_image
    assert not model.facts.estimated
    assert "one half" in model.facts.about_thresholds


def test_json_and_single_formats(embedded, tmp_path, capsys):
    words = ["export", str(embedded.folder), "--out", str(tmp_path / "out"), "--json"]
    assert main([*words, "--formats", "torch"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sizes"].keys() == {"model.pt2", "MODEL_CARD.md", "model.stac.json"}
    assert told["differences"].keys() == {"model.pt2"}
    item = json.loads((tmp_path / "out" / "model.stac.json").read_text())
    assert item["assets"].keys() == {"model.pt2", "MODEL_CARD.md"}
    assert item["properties"]["mlm:framework"] == "PyTorch"


def test_a_run_in_memory_is_exported_too(tmp_path):
    from adagc.methods.assume_negative import AssumeNegative

    kept = train(EMBEDDINGS, AssumeNegative(), collection=make_collection())
    done = export(kept, tmp_path / "out", formats=["onnx"])
    assert done.differences["model.onnx"] <= 1e-5
    assert ExportedModel(tmp_path / "out").classes == kept.model().spec.classes


# -- where it is written -------------------------------------------------------------------------


def test_an_earlier_export_is_replaced_and_leaves_no_file_behind(embedded, tmp_path):
    out = tmp_path / "out"
    export(embedded, out)
    (out / ".model.onnx.0123abcd.tmp").write_text("of a killed process")
    before = (out / "model.onnx").stat().st_mtime_ns
    export(embedded, out, formats=["onnx"])
    assert names(out) == {"model.onnx", "model.stac.json", "MODEL_CARD.md"}
    assert (out / "model.onnx").stat().st_mtime_ns > before


def test_other_files_are_refused_unless_allowed_and_never_touched(embedded, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    said = failed(capsys, embedded.folder, "--out", out)
    assert "holds other files (notes.txt)" in said
    assert "--overwrite" in said
    assert names(out) == {"notes.txt"}
    export(embedded, out, formats=["onnx"], overwrite=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "model.onnx").exists()
    with pytest.raises(UsageError, match=r"notes\.txt"):
        export(embedded, out)


def test_a_file_that_has_one_of_our_names_is_not_taken_for_ours(embedded, tmp_path):
    (tmp_path / "MODEL_CARD.md").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files .MODEL_CARD\.md."):
        export(embedded, tmp_path)
    assert (tmp_path / "MODEL_CARD.md").read_text() == "mine"


def test_the_folder_of_a_run_is_refused(embedded, capsys):
    before = names(embedded.folder)
    assert "holds other files" in failed(capsys, embedded.folder, "--out", embedded.folder)
    assert names(embedded.folder) == before


# -- nothing half-written ------------------------------------------------------------------------


def test_a_model_that_differs_is_not_written(embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "TOLERANCE", -1.0)
    with pytest.raises(AdagcError, match=r"model\.onnx differs from our network"):
        export(embedded, tmp_path / "a" / "out")
    assert names(tmp_path) == set()


def test_a_full_disk_leaves_nothing(embedded, tmp_path, monkeypatch, capsys):
    FullDisk(monkeypatch, "model.pt2", code=errno.ENOSPC)
    said = failed(capsys, embedded.folder, "--out", tmp_path / "new" / "out")
    assert "model.pt2 cannot be written" in said
    assert names(tmp_path) == set()


def test_a_full_disk_leaves_the_earlier_export_as_it_was(embedded, tmp_path, monkeypatch):
    export(embedded, tmp_path, formats=["onnx"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    FullDisk(monkeypatch, "model.stac.json", code=errno.ENOSPC)
    with pytest.raises(AdagcError, match="cannot be written"):
        export(embedded, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_item_with_the_checksums_appears_last(embedded, tmp_path, monkeypatch):
    moved = []
    original = Path.replace

    def note(self, target):
        moved.append(Path(target).name)
        return original(self, target)

    monkeypatch.setattr(Path, "replace", note)
    export(embedded, tmp_path / "out")
    assert moved[-1] == "model.stac.json"
    assert set(moved) == names(tmp_path / "out")


def test_a_signal_leaves_nothing(small_run, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "adagc", "export", str(small_run.folder), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("exporting")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143
    assert error.splitlines()[-1] == "adagc export: ended by SIGTERM"
    assert names(tmp_path) == set()


# -- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_said_in_one_line(embedded, small_run, tmp_path, capsys):
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.yaml").write_text("method: AN\nepochs: 2\n")
    out = tmp_path / "out"
    cases = [
        ((unfinished, "--out", out), "is not finished: adagc train --resume completes it"),
        ((tmp_path / "none", "--out", out), "does not exist: give the folder of a run"),
        ((tmp_path, "--out", out), "is not a run folder"),
        ((embedded.folder,), "--out is missing"),
        ((embedded.folder, "--out", unfinished / "config.yaml"), "is a file"),
        ((embedded.folder, "--out", out, "--formats", "timm"), "is not a network of timm"),
        ((embedded.folder, "--out", out, "--formats", "onx"), "onx"),
        ((embedded.folder, "--out", out, "--for", "deepness"), "Deepness takes images"),
        ((small_run.folder, "--out", out, "--for", "arcgis"), "arcgis"),
    ]
    for words, said in cases:
        assert said in failed(capsys, *words)
    assert not out.exists()


@pytest.mark.parametrize(("formats", "named"), [(["keras"], "'keras'"), ([], "none")])
def test_unknown_formats_from_python(embedded, tmp_path, formats, named):
    with pytest.raises(UsageError, match=f"no format {named}: choose from onnx, torch, timm"):
        export(embedded, tmp_path / "out", formats=formats)


def test_weights_that_are_a_pickle_are_refused_and_not_run(embedded, tmp_path, capsys):
    import pickle
    import shutil

    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "run",)

    place = tmp_path / "copy"
    shutil.copytree(embedded.folder, place)
    (place / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    assert "cannot be read" in failed(capsys, place, "--out", tmp_path / "out")
    assert names(tmp_path) == {"copy"}


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named(embedded, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AdagcError, match=rf"{name} is not installed.*adagc\[onnx\]"):
        export(embedded, tmp_path / "out")
    assert names(tmp_path) == set()


def test_training_is_not_touched_by_an_export(embedded, tmp_path):
    before = {path: path.read_bytes() for path in embedded.folder.rglob("*") if path.is_file()}
    export(embedded, tmp_path / "out", formats=["onnx"])
    after = {path: path.read_bytes() for path in embedded.folder.rglob("*") if path.is_file()}
    assert after == before

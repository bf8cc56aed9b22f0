"""`adagc embed`: vectors of images in files that training reads, with names and places."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from adagc.cli import main
from adagc.datasets import open_collection
from adagc.embedding import embed
from adagc.training.config import RunConfig
from fakes import picture

NETWORK = ["--backbone", "test_resnet", "--weights", "none", "--accelerator", "cpu"]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    for i in range(10):
        picture(tmp_path / "photos" / f"{'ab'[i % 2]}" / f"{i:02d}.png", side=(32, 32), seed=i)
    return tmp_path / "photos"


def names_of(photos) -> list[str]:
    return sorted(f"{path.parent.name}/{path.stem}" for path in photos.rglob("*.png"))


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
def test_what_is_written_is_read_by_training(photos, tmp_path, name, capsys):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="needs pyarrow")
    out = tmp_path / name
    assert main(["embed", str(photos), "--out", str(out), *NETWORK, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    kind = "geoparquet" if name.endswith(".parquet") else "array"
    images = open_collection(kind, out).images
    assert list(images.names) == names_of(photos)
    assert images.shape == (told["numbers"],)
    assert told["images"] == len(images) == 10
    labels = tmp_path / "labels.csv"
    rows = [f"{image},{image[0]}" for image in images.names]
    labels.write_text("image,label\n" + "\n".join(rows) + "\n")
    command = ["train", str(out), "--data", kind, "--labels", str(labels), "--epochs", "1",
               "--out", str(tmp_path / "run"), "--report", "false", "--json"]  # fmt: skip
    assert main(command) == 0


def test_the_vectors_are_the_features_of_the_network(photos):
    config = RunConfig(
        root=str(photos), backbone="test_resnet", weights="none", accelerator="cpu", batch_size=4
    )
    collection = open_collection("folder", photos)
    found = embed(config, collection=collection)
    from adagc.models import HeadSpec
    from adagc.training.network import network_maker

    rows = np.arange(10)
    network = network_maker(config, collection.images, ("x",), rows, HeadSpec())(0).eval()
    with torch.no_grad():
        pixels = torch.from_numpy(collection.images.gather(rows)).float()
        expected = network.embed(pixels).numpy()
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
    assert found.values.std(axis=0).max() > 0  # images differ
    half = embed(config, collection=collection, dtype="float16")
    assert half.values.dtype == np.float16
    assert found.geometry is None
    assert found.crs is None


def scene(path, *, x: float, epsg: int, seed: int = 0) -> None:
    """A georeferenced scene of 32 x 32 pixels of 10 m."""
    import rasterio
    from rasterio.transform import from_origin

    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 255, (3, 32, 32), dtype=np.uint8)
    with rasterio.open(
        path, "w", driver="GTiff", width=32, height=32, count=3, dtype="uint8",
        crs=f"EPSG:{epsg}", transform=from_origin(x, 5_500_000, 10, 10),
    ) as file:  # fmt: skip
        file.write(values)


@pytest.mark.parametrize("zones", [(32633, 32633), (32632, 32633)])
def test_places_of_geotiffs_are_kept(tmp_path, monkeypatch, zones):
    for package in ("rasterio", "geopandas", "pyarrow"):
        pytest.importorskip(package, reason=f"needs {package}")
    import geopandas

    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    for i in range(4):
        scene(tmp_path / "scenes" / f"{i}.tif", x=500_000 + 320 * i, epsg=zones[i % 2], seed=i)
    picture(tmp_path / "scenes" / "plain.png", side=(32, 32))
    out = tmp_path / "x.parquet"
    assert main(["embed", str(tmp_path / "scenes"), "--out", str(out), *NETWORK]) == 0
    frame = geopandas.read_parquet(out).set_index("id")
    same = zones[0] == zones[1]
    assert frame.crs.to_epsg() == (zones[0] if same else 4326)
    assert frame.geometry["plain"] is None
    for i in range(4):
        shape = frame.loc[[str(i)]].geometry.to_crs(zones[i % 2]).iloc[0]
        left, bottom, right, top = shape.bounds
        expected = (500_000 + 320 * i, 5_499_680, 500_320 + 320 * i, 5_500_000)
        np.testing.assert_allclose((left, bottom, right, top), expected, atol=1e-3)
    images = open_collection("geoparquet", out).images
    assert images.crs == f"EPSG:{zones[0] if same else 4326}"
    assert [place is None for place in images.geometry(np.arange(5))] == [False] * 4 + [True]


def test_folders_know_the_places_of_their_files(tmp_path, monkeypatch):
    pytest.importorskip("rasterio", reason="needs rasterio")
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    scene(tmp_path / "scenes" / "a.tif", x=0, epsg=32633)
    scene(tmp_path / "scenes" / "b.tif", x=320, epsg=32633, seed=1)
    images = open_collection("folder", tmp_path / "scenes").images
    assert images.crs == "EPSG:32633"
    first, second = images.geometry(np.array([1, 0]))
    corners = np.frombuffer(second[13:]).reshape(5, 2)
    np.testing.assert_allclose(
        corners, [(0, 5.5e6), (320, 5.5e6), (320, 5499680), (0, 5499680), (0, 5.5e6)]
    )
    assert first != second


def test_without_rasterio_places_are_left_out_with_a_warning(tmp_path, monkeypatch, caplog):
    pytest.importorskip("rasterio", reason="needs rasterio")
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    scene(tmp_path / "scenes" / "a.tif", x=0, epsg=32633)
    images = open_collection("folder", tmp_path / "scenes").images
    from adagc.images import footprint

    monkeypatch.setattr(footprint, "find_spec", lambda name: None)
    assert images.geometry(np.array([0])) == [None]
    assert "pip install 'adagc[geo]'" in caplog.text


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["--out", "x.txt", *NETWORK], "must end with .npy, .npz, .parquet", 2),
        (
            ["--out", "x.npy", "--backbone", "test_resnet"],
            "no pretrained weights for test_resnet",
            2,
        ),
        (["--out", "x.npy", "--backbone", "resnet1"], "resnet1", 2),
        (["--out", "there.npy", *NETWORK], "there.npy exists: add --force", 2),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    photos, tmp_path, monkeypatch, capsys, words, said, code
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.npy").write_bytes(b"mine")
    before = {path.name for path in tmp_path.iterdir()} | {"cache"}
    assert main(["embed", str(photos), *words]) == code
    error = capsys.readouterr().err.strip().splitlines()
    assert said in error[-1]
    assert {path.name for path in tmp_path.iterdir()} <= before
    assert (tmp_path / "there.npy").read_bytes() == b"mine"


def test_embeddings_are_not_embedded_again(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((4, 3), dtype=np.float32))
    words = ["embed", str(tmp_path / "x.npy"), "--data", "array", "--out", str(tmp_path / "y.npy")]
    assert main([*words, *NETWORK]) == 2
    assert "embeddings already" in capsys.readouterr().err


SLOW = Path(__file__).parent / "prediction" / "slow_predict.py"


@pytest.fixture
def many_photos(photos):
    for i in range(10, 40):
        picture(photos / "c" / f"{i:02d}.png", side=(32, 32), seed=i)
    return photos


def test_a_killed_command_continues(many_photos, tmp_path, capsys):
    whole, out = tmp_path / "whole.npy", tmp_path / "out.npy"
    words = ["embed", str(many_photos), "--batch-size", "2", *NETWORK, "--out"]
    assert main([*words, str(whole)]) == 0
    process = subprocess.Popen(
        [sys.executable, str(SLOW), "0.5", *words, str(out)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    journal = tmp_path / "out.npy.progress"
    while not (journal.exists() and journal.read_bytes().count(MARK) >= 2):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    capsys.readouterr()
    assert main([*words, str(out)]) == 0
    errors = capsys.readouterr().err
    assert "continued: " in errors
    assert "of 5 blocks are done" in errors
    assert out.read_bytes() == whole.read_bytes()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"photos", "cache", *(f"{x}{y}" for x in ("whole", "out") for y in ENDS)}


MARK = np.array([0x61646167], dtype="<u4").tobytes()  # of a block that is written
ENDS = (".npy", ".names.txt")


def test_other_images_are_not_continued(many_photos, tmp_path, monkeypatch):
    """A journal of other images, weights or settings is not used."""
    from adagc import embedding
    from adagc.prediction import shared

    config = RunConfig(root=str(many_photos), backbone="test_resnet", weights="none", batch_size=2)
    out = tmp_path / "x.npy"
    monkeypatch.setattr(shared.Journals, "remove", shared.Journals.close)  # as if it was killed
    seen = []
    recorded = shared.recorded

    def noting(path, fingerprint, *rest):
        seen.append(fingerprint)
        return recorded(path, fingerprint, *rest)

    monkeypatch.setattr(embedding, "recorded", noting)
    first = embed(config, out)
    again = embed(config, out)
    np.testing.assert_array_equal(again.values, first.values)
    picture(many_photos / "c" / "10.png", side=(32, 32), seed=99)
    changed = embed(config, out)
    row = changed.names.index("c/10")
    assert not np.allclose(changed.values[row], first.values[row])
    embed(RunConfig(**{**config.to_dict(), "seed": 1}), out)
    assert len(set(seen)) == 3
    assert seen[0] == seen[1]


def test_in_memory_and_as_a_table(photos):
    config = RunConfig(root=str(photos), backbone="test_resnet", weights="none")
    found = embed(config)
    assert repr(found) == "Embeddings(10 images, 96 numbers each, by test_resnet)"
    table = found.table()
    assert list(table["id"]) == names_of(photos)
    assert table["embedding"].shape == found.values.shape

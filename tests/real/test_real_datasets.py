from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adagc.datasets.aid import aid_collection
from adagc.datasets.inspect.look import inspect
from adagc.datasets.mosaic import mosaic_collection
from adagc.datasets.ucmerced import ucmerced_collection
from adagc.images.decode import peek, read_image
from adagc.images.mosaic.scenes import MosaicScenes
from adagc.images.normalisation import far_from_unit, measure
from machine import DATA
from reference.slow_statistics import running_statistics


@pytest.mark.system(data="AID_multilabel")
def test_aid(tmp_path: Path) -> None:
    data = aid_collection(DATA / "AID_multilabel", size=32, cache=tmp_path)
    assert {k: len(v) for k, v in data.splits.items()} == {"train": 1800, "val": 600, "test": 600}
    assert len(set(np.concatenate([*data.splits.values()]).tolist())) == 3000
    assert len(data.classes) == 16
    assert "mobile-home" not in data.classes
    assert data.truth is not None
    assert data.truth.sum() == 15_456
    support = dict(zip(data.classes, data.truth.sum(0).tolist(), strict=True))
    assert (support["airplane"], support["trees"], support["water"]) == (99, 2407, 852)
    assert data.truth.any(axis=1).all()
    airport = data.truth[data.images.names.index("airport_10")]
    assert {c for c, there in zip(data.classes, airport, strict=True) if there} == {
        "airplane", "buildings", "cars", "grass", "pavement", "trees",
    }  # fmt: skip
    # every scene type keeps its share in validation
    scenes = np.array([name.rsplit("_", 1)[0] for name in data.images.names])
    _, train = np.unique(scenes[data.splits["train"]], return_counts=True)
    _, val = np.unique(scenes[data.splits["val"]], return_counts=True)
    assert len(train) == len(val) == 30
    assert np.abs(val / (train + val) - 0.25).max() < 0.02
    everything = data.images.gather(np.arange(3000))
    assert (everything.reshape(3000, -1).std(axis=1) > 0).all()  # no image is blank

    measured = measure(data.images, data.splits["train"])
    assert (measured.mean > 80).all()
    assert (measured.mean < 120).all()
    scaled = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    rows = data.splits["train"]
    assert far_from_unit(data.images, rows, 255 * scaled[0], 255 * scaled[1]) == []
    assert far_from_unit(data.images, rows, *scaled)[-1].endswith("divide the values by 255")


@pytest.mark.system(data="UCMerced_sample")
def test_ucmerced(tmp_path: Path) -> None:
    data = ucmerced_collection(DATA / "UCMerced_sample", size=None, cache=tmp_path)
    assert data.images.shape == (3, 256, 256)  # two files are 251 pixels high
    assert {k: len(v) for k, v in data.splits.items()} == {"train": 63, "val": 21, "test": 21}
    assert len(data.classes) == 17
    assert data.truth is not None
    assert data.truth[:, data.classes.index("airplane")].sum() == 5
    for name, row in zip(data.images.names, data.truth, strict=True):
        assert row[data.classes.index("airplane")] == name.startswith("airplane")


@pytest.mark.system(data="UCMerced_sample")
def test_inspect_ucmerced() -> None:
    found = inspect(DATA / "UCMerced_sample")
    assert found.images.shapes == {(3, 256, 256): 103, (3, 251, 256): 2}
    assert found.truth is not None
    assert sum(found.truth.cardinality.values()) == 105
    assert found.warnings == ()


@pytest.mark.system(data="BigEarthNet_sample")
def test_sentinel_patches() -> None:
    files = sorted((DATA / "BigEarthNet_sample").rglob("*.tif"))
    assert len(files) == 84
    for path in files:
        image = read_image(path)
        assert peek(path)[:2] == (image.shape, image.dtype)
        assert image.shape in {(1, 120, 120), (1, 60, 60), (1, 20, 20)}
        radar = path.stem.endswith(("VV", "VH"))
        assert image.dtype == (np.float32 if radar else np.uint16)


@pytest.mark.system(data="UCMerced_sample")
def test_networks_see_the_statistics_they_always_saw(tmp_path: Path) -> None:
    data = ucmerced_collection(DATA / "UCMerced_sample", size=96, cache=tmp_path)
    found = measure(data.images, data.splits["train"])
    mean, std = running_statistics(data.images, data.splits["train"])
    assert (found.mean.astype(np.float32) == mean.astype(np.float32)).all()
    assert (found.std.astype(np.float32) == std.astype(np.float32)).all()


@pytest.mark.system(data="AID_multilabel")
def test_mosaics_of_aid(tmp_path: Path) -> None:
    data = mosaic_collection(DATA / "AID_multilabel", scenes=60, cache=tmp_path)
    assert len(data.classes) == 30
    assert {"airport", "beach", "storagetanks"} <= set(data.classes)
    assert "from 3000 images" in data.description  # no copies
    assert data.images.shape == (3, 96, 96)
    assert data.truth is not None
    assert 2.6 < data.truth.sum(axis=1).mean() < 3.4
    images = data.images
    assert isinstance(images, MosaicScenes)
    sources = {
        split: {name for row in rows for name in images.made_from(row)}
        for split, rows in data.splits.items()
    }
    assert not sources["train"] & (sources["val"] | sources["test"])
    assert not sources["val"] & sources["test"]
    # Textures at the scale of the files: the values of a patch are values of its source.
    pixels = images.gather(np.arange(5))
    for row in range(5):
        shown = np.unique(images.maps[row])
        for c, name in zip(shown, images.made_from(row), strict=True):
            assert Path(name).parent.name.lower() == data.classes[c]
            source = read_image(DATA / "AID_multilabel" / f"{name}.jpg")
            colours = {tuple(colour) for colour in source.reshape(3, -1).T.tolist()}
            patch = pixels[row][:, images.maps[row] == c].T.tolist()
            assert {tuple(colour) for colour in patch} <= colours


@pytest.mark.system(data="UCMerced_sample")
def test_mosaics_of_ucmerced(tmp_path: Path) -> None:
    data = mosaic_collection(DATA / "UCMerced_sample", scenes=8, size=200, cache=tmp_path)
    assert len(data.classes) == 21
    assert data.images.gather(np.arange(3)).shape == (3, 3, 200, 200)

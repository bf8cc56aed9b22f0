from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adagc.datasets.aid import aid_collection
from adagc.datasets.collection import Collection
from adagc.datasets.ucmerced import ucmerced_collection
from adagc.errors import DataError, UsageError
from adagc.images.decode import load
from fakes import CLASSES, fake_aid, fake_ucmerced, picture


def check_splits(collection: Collection, sizes: dict[str, int]) -> None:
    assert {name: len(rows) for name, rows in collection.splits.items()} == sizes
    together = np.concatenate([*collection.splits.values()])
    assert sorted(together.tolist()) == list(range(len(collection.images)))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
@pytest.mark.parametrize("scene_folders", [True, False])
def test_aid(suffix: str, scene_folders: bool, tmp_path: Path) -> None:
    truth = fake_aid(tmp_path / "aid", suffix=suffix, scene_folders=scene_folders)
    data = aid_collection(tmp_path / "aid", size=8, cache=tmp_path / "c")
    check_splits(data, {"train": 12, "val": 4, "test": 4})
    keep = [i for i, name in enumerate(CLASSES) if name != "mobile-home"]
    assert data.classes == tuple(CLASSES[i] for i in keep)
    assert data.truth is not None
    for name, row in zip(data.images.names, data.truth, strict=True):
        np.testing.assert_array_equal(row, truth[name][keep], err_msg=name)
    assert {data.images.names[i] for i in data.splits["test"]} == {
        f"{scene}_{i}" for scene in ("airport", "beach") for i in (9, 10)
    }
    scenes = [data.images.names[i].split("_")[0] for i in data.splits["val"]]
    assert sorted(scenes) == ["airport", "airport", "beach", "beach"]
    assert data.images.shape == (3, 8, 8)
    assert data.images.bands == ("red", "green", "blue")


def test_aid_pixels_belong_to_their_names(tmp_path: Path) -> None:
    fake_aid(tmp_path)
    images = aid_collection(tmp_path, size=16, cache=tmp_path / ".c").images
    found = {path.stem: path for path in tmp_path.rglob("*.jpg")}
    for name, image in zip(images.names, images.gather(np.arange(len(images))), strict=True):
        np.testing.assert_array_equal(image, load(found[name], 16))


def test_aid_options(tmp_path: Path) -> None:
    fake_aid(tmp_path / "data" / "AID_multilabel")
    cache = tmp_path / "c"
    everything = aid_collection(tmp_path / "data", size=8, cache=cache, drop=())  # one folder up
    assert everything.classes == tuple(CLASSES)
    other = aid_collection(tmp_path / "data", size=8, cache=cache, seed=1)
    assert not np.array_equal(other.splits["val"], everything.splits["val"])
    np.testing.assert_array_equal(other.splits["test"], everything.splits["test"])
    with pytest.raises(UsageError, match="cannot drop 'boats'; the classes are airplane"):
        aid_collection(tmp_path / "data", size=8, cache=cache, drop=("boats",))


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
@pytest.mark.parametrize("name", ["LandUse_Multilabeled.txt", "LandUse_Multilabeled.csv"])
def test_ucmerced(suffix: str, name: str, tmp_path: Path) -> None:
    truth = fake_ucmerced(tmp_path, suffix=suffix, table_name=name)
    data = ucmerced_collection(tmp_path, size=None, cache=tmp_path / ".c")
    check_splits(data, {"train": 12, "val": 4, "test": 4})
    assert data.images.shape == (3, 16, 16)  # also the image that is two pixels short
    assert data.classes == tuple(CLASSES)
    assert data.truth is not None
    for image, row in zip(data.images.names, data.truth, strict=True):
        np.testing.assert_array_equal(row, truth[image])
    for rows in data.splits.values():
        airplanes = sum(data.images.names[i].startswith("airplane") for i in rows)
        assert airplanes == len(rows) / 2


@pytest.mark.parametrize("lacking", ["images_tr", "images_test", "multilabel.csv"])
def test_missing_pieces_show_the_tree(lacking: str, tmp_path: Path) -> None:
    fake_aid(tmp_path / "aid")
    (tmp_path / "aid" / lacking).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=rf"lacks {lacking}; expected images_tr/<Scene>/<name>"):
        aid_collection(tmp_path / "aid", cache=tmp_path / "c")
    with pytest.raises(DataError, match="no such folder"):
        aid_collection(tmp_path / "nowhere", cache=tmp_path / "c")


def test_image_without_row_and_row_without_image(tmp_path: Path) -> None:
    fake_aid(tmp_path)
    (tmp_path / "images_tr" / "Beach" / "beach_1.jpg").unlink()
    data = aid_collection(tmp_path, size=8, cache=tmp_path / ".c")
    assert data.notes == ("19 of 20 images in the label table were found",)
    picture(tmp_path / "images_tr" / "Beach" / "stranger_1.jpg")
    with pytest.raises(DataError, match=r"1 images have no row, the first is .*stranger_1.jpg"):
        aid_collection(tmp_path, size=8, cache=tmp_path / ".c")


def test_the_same_image_twice(tmp_path: Path) -> None:
    fake_aid(tmp_path)
    picture(tmp_path / "images_test" / "Beach" / "beach_1.png")
    with pytest.raises(DataError, match="are the same image"):
        aid_collection(tmp_path, size=8, cache=tmp_path / ".c")

from __future__ import annotations

import gc
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from adagc.datasets import open_collection
from adagc.datasets.array import array_collection
from adagc.errors import DataError
from adagc.images.array import ArrayScenes, pooled

RNG = np.random.default_rng(0)
EMBEDDINGS = RNG.normal(size=(20, 7)).astype(np.float32)
IMAGES = RNG.integers(0, 9999, (20, 4, 6, 5)).astype(np.uint16)


def test_in_memory() -> None:
    scenes = ArrayScenes(IMAGES)
    assert scenes.names[:2] == ("00000", "00001")
    assert (scenes.shape, scenes.dtype, scenes.is_image) == ((4, 6, 5), np.uint16, True)
    assert scenes.bands == ("band_1", "band_2", "band_3", "band_4")
    picked = scenes.gather(np.array([3, 1, 3]))
    np.testing.assert_array_equal(picked, IMAGES[[3, 1, 3]])
    picked[:] = 0
    assert IMAGES[3].any()


def test_embeddings() -> None:
    scenes = ArrayScenes(EMBEDDINGS, [f"e{i}" for i in range(20)])
    assert (scenes.shape, scenes.is_image) == ((7,), False)
    assert scenes.bands[0] == "feature_1"


@pytest.mark.parametrize("array", [EMBEDDINGS, IMAGES], ids=["embeddings", "images"])
@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "big-endian"])
def test_files(array: np.ndarray, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{'npy' if suffix == 'big-endian' else suffix}"
    if suffix == "npz":
        np.savez(path, images=array, names=np.array([f"n{i}" for i in range(20)]), other=array[:2])
    elif suffix == "safetensors":
        save_file({"x": array}, path)
    else:
        np.save(path, array.astype(array.dtype.newbyteorder(">")) if "big" in suffix else array)
    data = array_collection(path)
    assert data.images.names[1] == ("n1" if suffix == "npz" else "00001")
    values = data.images.gather(np.arange(20))
    np.testing.assert_array_equal(values, array)
    assert values.dtype.isnative
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 16, "val": 4}


def test_folder_with_names_and_truth(tmp_path: Path) -> None:
    np.save(tmp_path / "embeddings.npy", EMBEDDINGS)
    names = [f"scene/{i}.tif" for i in range(20)]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n\n")
    rows = "".join(f"scene/{i},{i % 2},{i % 3 == 0:d}\n" for i in range(20))
    (tmp_path / "truth.csv").write_text("image,a,b\n" + rows)
    (tmp_path / "labels.csv").write_text("image,label\n0,b\n1,a\n3,a\n6,b\n")
    data = open_collection("array", tmp_path, truth="truth.csv", labels="labels.csv")
    assert data.images.names == tuple(names)
    assert data.classes == ("a", "b")
    assert data.truth is not None
    assert data.truth[9].tolist() == [True, True]
    # only four rows can be trained on: all others, whose complete labels are known, test
    assert {k: len(v) for k, v in data.splits.items()} == {"train": 3, "val": 1, "test": 16}
    assert isinstance(data.images, ArrayScenes)
    assert isinstance(data.images._array, np.memmap)


def test_split_file_and_names_argument(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    (tmp_path / "split.csv").write_text("image,split\na0,train\na1,train\na2,val\na3,test\n")
    data = array_collection(
        tmp_path, names=[f"a{i}" for i in range(20)], split=tmp_path / "split.csv"
    )
    assert {k: v.tolist() for k, v in data.splits.items()} == {
        "train": [0, 1],
        "val": [2],
        "test": [3],
    }


def test_pickle_of_a_mapped_file(tmp_path: Path) -> None:
    big = np.arange(200_000, dtype=np.float32).reshape(1000, 200)
    np.save(tmp_path / "a.npy", big)
    images = array_collection(tmp_path / "a.npy").images
    data = pickle.dumps(images)
    assert len(data) < 50_000
    np.testing.assert_array_equal(pickle.loads(data).gather(np.arange(1000)), big)


@pytest.mark.parametrize("shape", [(2, 1280, 3, 3), (2, 512, 1, 1), (2, 3, 16, 16), (2, 16, 4, 4)])
def test_feature_maps_are_not_taken_for_pictures_with_bands_last(shape):
    assert ArrayScenes(np.zeros(shape, dtype=np.float32)).shape == shape[1:]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((3, 4, 5)),
            r"shape \(3, 4, 5\) has 3 axes; save embeddings as \(images, numbers",
        ),
        (np.zeros((0, 4)), r"shape \(0, 4\) is empty"),
        (np.zeros((3, 4), dtype=complex), "complex128 values"),
        (np.zeros((2, 16, 16, 3)), r"bands last; save np\.moveaxis"),
    ],
)
def test_refuses(array: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ArrayScenes(array)


def test_file_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "none.npz", names=np.array(["a"]))
    np.savez(tmp_path / "two.npz", left=EMBEDDINGS, right=EMBEDDINGS)
    np.save(tmp_path / "fine.npy", EMBEDDINGS)
    for name, message in [
        ("bad.npy", r"cannot be read \(it is no NumPy file of numbers\); save it again"),
        ("objects.npy", r"cannot be read \(it is no NumPy file of numbers\); save it again"),
        ("none.npz", "holds no array; save one in it as 'images'"),
        ("two.npz", "holds left, right; call the one to use 'images'"),
        (".", "expected a file ending in"),
    ]:
        with pytest.raises(DataError, match=message):
            array_collection(tmp_path / name)
    with pytest.raises(DataError, match="2 different names for 20 rows"):
        array_collection(tmp_path / "fine.npy", names=["a", "b"])


def test_means_over_positions_are_taken_once_and_forgotten_with_their_images():
    values = np.random.default_rng(0).random((5, 3, 2, 2)).astype(np.float32)
    images = ArrayScenes(values, tuple("abcde"), ("x", "y", "z"))
    first = pooled(images)
    assert pooled(images) is first
    np.testing.assert_allclose(first.gather(np.arange(5)), values.mean(axis=(2, 3)), rtol=1e-6)
    gone = weakref.ref(images)
    del images, first
    gc.collect()
    assert gone() is None

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from adagc.datasets.inspect.look import Inspection, inspect, render
from adagc.errors import DataError
from fakes import CLASSES, fake_aid, fake_ucmerced, picture


def text(inspection: Inspection) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(render(inspection))
    json.dumps(inspection.to_dict(), allow_nan=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(8):
        picture(tmp_path / "images" / ("a" if i < 4 else "b") / f"{i}.png", seed=i, side=(40, 48))
    return tmp_path / "images"


def test_clean_folder(root: Path) -> None:
    found = inspect(root)
    assert (found.kind, found.warnings) == ("folder", ())
    assert found.images.shapes == {(3, 40, 48): 8}
    assert found.images.dtypes == {"uint8": 8}
    measured = found.images.statistics
    assert measured is not None
    assert measured.count.tolist() == [8 * 40 * 48] * 3
    assert "nothing to worry about" in text(found)
    assert found.to_dict()["shapes"] == {"3 x 40 x 48": 8}


def test_bad_files_are_listed(root: Path) -> None:
    (root / "a" / "0.png").write_bytes(b"no")
    picture(root / "small.png", side=(9, 40))
    picture(root / "[grey].png", side=(40, 40), bands=1)
    np.save(root / "deep.npy", np.full((3, 40, 40), 7, dtype=np.uint16))
    shutil.copy(root / "a" / "1.png", root / "b" / "copy.png")
    found = inspect(root, size=64)
    assert list(found.images.unreadable) == ["a/0.png"]
    assert "cannot be read" in found.images.unreadable["a/0.png"]
    assert found.images.duplicates == (("a/1.png", "b/copy.png"),)
    warnings = "\n".join(found.warnings)
    for part in (
        "1 files cannot be read: a/0.png",
        "different numbers of bands",
        "different depths (uint16, uint8)",
        "1 images are smaller than 32 pixels",
        "11 images are enlarged to 64",
        "1 images are copies of another one: a/1.png, b/copy.png",
        "1 groups of copies lie across top folders",
    ):
        assert part in warnings
    assert "a/0.png" in text(found)


def test_mostly_copies(root: Path) -> None:
    for i in range(1, 8):
        shutil.copy(root / "a" / "0.png", root / ("a" if i < 4 else "b") / f"{i}.png")
    assert any(w.startswith("most images are copies") for w in inspect(root).warnings)


def test_values(tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(3, 40, 40)).astype(np.float32)
    image[0] = 5
    image[1, :20] = np.nan
    np.save(tmp_path / "a.npy", image)
    warnings = inspect(tmp_path, bands=("x", "y", "z"), mean=[0, 0, 900], std=[1, 1, 1]).warnings
    assert "band x is constant" in warnings
    assert "band y: 50.00% of the values are NaN or infinite" in warnings
    assert any(w.startswith("band z: after normalising, mean -900") for w in warnings)


def test_labels(root: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,label\n0,tree\n1,tree\n2,water\n77,tree\n")
    rows = "".join(f"{i},{i % 2},1,0\n" for i in range(8))
    (tmp_path / "truth.csv").write_text("image,tree,water,rock\n" + rows)
    found = inspect(root, labels=tmp_path / "labels.csv", truth=tmp_path / "truth.csv")
    assert found.labels is not None
    assert found.truth is not None
    assert found.labels.counts == {"tree": 2, "water": 1}
    assert found.labels.images_without == ("a/3", "b/4", "b/5", "b/6", "b/7")
    assert found.labels.labels_without == ("77",)
    assert found.truth.cardinality == {1: 4, 2: 4}
    assert found.warnings == (
        "labels: 5 images have no row: a/3, b/4, b/5, ...",
        "labels: 1 rows have no image: 77",
        "truth: no image of rock",
    )
    shown = text(found)
    assert "Labels per image" in shown
    assert "rock" in shown


def test_published(tmp_path: Path) -> None:
    truth = fake_aid(tmp_path / "aid")
    found = inspect(tmp_path / "aid")
    assert found.kind == "AID-multilabel"
    assert found.truth is not None
    assert found.truth.counts["trees"] == sum(v[CLASSES.index("trees")] for v in truth.values())
    assert len(found.images.names) == 20
    fake_ucmerced(tmp_path / "ucm")
    other = inspect(tmp_path / "ucm")
    assert other.kind.startswith("UC Merced")
    assert other.images.shapes == {(3, 16, 16): 19, (3, 14, 16): 1}


@pytest.mark.parametrize("as_folder", [True, False])
def test_arrays(as_folder: bool, tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
    array[3] = array[7]
    np.save(tmp_path / "embeddings.npy", array)
    found = inspect(tmp_path if as_folder else tmp_path / "embeddings.npy")
    assert found.kind == "array"
    assert found.images.shapes == {(5,): 10}
    assert found.images.duplicates == (("00003", "00007"),)
    assert "feature_1" in text(found)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images found"):
        inspect(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    found = inspect(tmp_path)
    assert "no image could be read" in found.warnings
    assert "a.png" in text(found)


def test_images_with_values_that_are_not_finite_are_named(tmp_path):
    for i in range(4):
        values = np.random.default_rng(i).random((3, 8, 8)).astype(np.float32)
        if i == 2:
            values[0, 3, 3] = np.nan
        np.save(tmp_path / f"i{i}.npy", values)
    found = inspect(tmp_path)
    assert found.images.broken == ("i2.npy",)
    assert any("i2.npy" in warning for warning in found.warnings)
    array = np.ones((5, 6), dtype=np.float32)
    array[4, 1] = np.inf
    np.save(tmp_path / "all.npy", array)
    assert inspect(tmp_path / "all.npy").images.broken == ("00004",)

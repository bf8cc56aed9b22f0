from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from rich.console import Console

from adagc.datasets.inspect.labels import class_warnings
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
    assert any("missing values (band y: 50.00%)" in warning for warning in warnings)
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
        "labels: 1 of 3 labels (33%) contradict the truth, for example tree on a/0",
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
    assert (found.images.missing, found.images.infinite) == (("i2.npy",), ())
    assert any("missing values" in line and "i2.npy" in line for line in found.warnings)
    array = np.ones((5, 6), dtype=np.float32)
    array[4, 1] = np.inf
    np.save(tmp_path / "all.npy", array)
    found = inspect(tmp_path / "all.npy")
    assert (found.images.missing, found.images.infinite) == ((), ("00004",))
    assert any("training stops: 00004" in line for line in found.warnings)


# -- what a look must notice -------------------------------------------------------------------


def tables(root: Path, labels: str, truth: str = "") -> dict[str, Path]:
    (root.parent / "labels.csv").write_text(labels)
    (root.parent / "truth.csv").write_text(truth)
    files = {"labels": root.parent / "labels.csv"}
    return files | ({"truth": root.parent / "truth.csv"} if truth else {})


def test_labels_that_contradict_the_truth(root: Path) -> None:
    labels = "image,labels\n" + "".join(f"{i},tree\n" for i in range(8))
    truth = "image,tree,water\n" + "".join(f"{i},0,1\n" for i in range(8))
    (warning,) = inspect(root, **tables(root, labels, truth)).warnings[-1:]
    assert warning == ("labels: 8 of 8 labels (100%) contradict the truth, for example tree on a/0")
    right = "image,labels\n" + "".join(f"{i},water\n" for i in range(8))
    assert not any("contradict" in w for w in inspect(root, **tables(root, right, truth)).warnings)
    absent = "image,labels\n0,!water\n1,water;!tree\n"  # one of three: water is there
    assert any(
        "1 of 3 labels (33%) contradict" in warning
        for warning in inspect(root, **tables(root, absent, truth)).warnings
    )


def test_only_images_with_truth_can_contradict_it(root: Path) -> None:
    labels = "image,label\n" + "".join(f"{i},{'tree' if i % 2 else 'water'}\n" for i in range(8))
    truth = "image,tree,water\n1,1,0\n2,0,1\n"
    assert not any("contradict" in w for w in inspect(root, **tables(root, labels, truth)).warnings)


def test_classes_that_the_truth_does_not_know(root: Path) -> None:
    labels = "image,label\n0,tree\n1,lakes\n2,rock\n"
    truth = "image,tree,lake\n" + "".join(f"{i},1,1\n" for i in range(8))
    warnings = inspect(root, **tables(root, labels, truth)).warnings
    assert "labels: classes that the truth does not know: lakes, rock; did you mean 'lake'?" in (
        warnings
    )


@pytest.mark.parametrize(
    ("one", "two"), [("FIELD", "field"), ("bare soil", "bare-soil"), ("Sea", "sea_"), ("ß", "SS")]
)
def test_spellings_of_one_class(one: str, two: str, root: Path) -> None:
    labels = f"image,label\n0,{one}\n1,{two}\n2,tree\n"
    warnings = "\n".join(inspect(root, **tables(root, labels)).warnings)
    assert "may be one class in different spellings" in warnings
    assert one in warnings
    assert two in warnings
    assert "tree" not in warnings


def test_different_classes_are_not_called_spellings(root: Path) -> None:
    labels = "image,label\n0,sea\n1,seas\n2,tree 1\n3,tree 2\n"
    assert "spellings" not in "\n".join(inspect(root, **tables(root, labels)).warnings)


def test_a_single_class(root: Path) -> None:
    labels = "image,label\n" + "".join(f"{i},tree\n" for i in range(8))
    assert inspect(root, **tables(root, labels)).warnings == (
        "labels: tree is the only class; a classifier needs two or more",
    )


@pytest.mark.parametrize("array", [False, True])
def test_names_for_too_few_bands(array: bool, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 999, (5, 14, 40, 40), dtype=np.uint16)
    (tmp_path / "data").mkdir()
    for i, image in enumerate(values):
        np.save(tmp_path / "data" / f"{i}.npy", image)
    np.save(tmp_path / "all.npy", values)
    found = inspect(tmp_path / ("all.npy" if array else "data"), bands=("red", "green", "blue"))
    assert any(
        w.startswith("3 band names (red, green, blue) for images of 14") for w in found.warnings
    )
    assert len(found.images.bands) == 14
    text(found)


@pytest.mark.parametrize(
    ("dtype", "nodata", "low", "high"),
    [
        (np.int16, -9999, 0, 10000),
        (np.float32, -9999, 0, 1),
        (np.float32, -3.4028235e38, 100, 900),
        (np.uint16, 65535, 300, 4000),
        (np.uint16, 0, 5000, 9000),
        (np.float64, 1e20, -30, 5),
    ],
)
@pytest.mark.parametrize("array", [False, True])
def test_a_number_that_stands_for_missing_values(
    dtype: type, nodata: float, low: float, high: float, array: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(low, high, (6, 3, 40, 40)).astype(dtype)
    values[2, 1, :5, :5] = nodata
    (tmp_path / "data").mkdir()
    for i, image in enumerate(values):
        np.save(tmp_path / "data" / f"{i}.npy", image)
    np.save(tmp_path / "all.npy", values)
    root = tmp_path / ("all.npy" if array else "data")
    found = inspect(root)
    (suspect,) = found.images.suspects
    assert suspect.value == pytest.approx(nodata)
    assert suspect.bands == ("green",)
    assert suspect.share == pytest.approx(25 / (6 * 1600))
    assert any(f"add --nodata {suspect.value:.9g}" in warning for warning in found.warnings)
    text(found)
    told = inspect(root, nodata=nodata)
    assert told.images.suspects == ()
    assert told.images.missing == (("00002",) if array else ("2.npy",))
    assert told.images.statistics is not None
    assert told.images.statistics.minimum[1] >= low
    assert told.images.statistics.missing[1] == pytest.approx(25 / (6 * 1600))
    assert any("missing values (band green: 0.26%)" in warning for warning in told.warnings)
    assert told.images.dtypes == {np.dtype(dtype).name: 6}


def test_ordinary_values_are_not_suspected(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = {
        "normal": rng.normal(size=(20, 3, 40, 40)).astype(np.float32),
        "clipped": rng.normal(128, 90, (20, 3, 40, 40)).clip(0, 255).astype(np.uint8),
        "mask": rng.integers(0, 2, (20, 3, 40, 40), dtype=np.uint8) * 255,
        "classes": rng.integers(0, 4, (20, 1, 40, 40), dtype=np.uint8) * 60,
        "features": np.maximum(rng.normal(size=(200, 30)), 0).astype(np.float32),
        "tail": rng.lognormal(3, 1.5, (20, 3, 40, 40)).astype(np.uint16),
        "constant": np.full((20, 3, 40, 40), 7, np.uint8),
        "missing": np.full((20, 3, 40, 40), np.nan, np.float32),
    }
    for name, values in cases.items():
        np.save(tmp_path / f"{name}.npy", values)
        assert inspect(tmp_path / f"{name}.npy").images.suspects == (), name


def test_a_tiff_that_names_its_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(3):
        image = rng.integers(100, 900, (4, 40, 40), dtype=np.int16)
        image[1, : 10 * i] = -9999
        tifffile.imwrite(
            tmp_path / f"{i}.tif", image, photometric="minisblack",
            extratags=[(42113, "s", 0, "-9999", True)],
        )  # fmt: skip
    found = inspect(tmp_path)
    assert found.images.missing == ("1.tif", "2.tif")
    assert found.images.statistics is not None
    assert found.images.statistics.missing.tolist() == pytest.approx([0, 30 / 120, 0, 0])
    assert found.images.dtypes == {"int16": 3}


def test_rows_of_unreadable_images_have_an_image(root: Path) -> None:
    (root / "a" / "0.png").write_bytes(b"no")
    labels = "image,label\n" + "".join(f"{i},{'tree' if i % 2 else 'water'}\n" for i in range(8))
    found = inspect(root, **tables(root, labels))
    assert found.labels is not None
    assert found.labels.labels_without == ()
    assert found.labels.counts == {"tree": 4, "water": 3}


def test_one_class_with_its_accent_stored_in_two_ways_is_noticed() -> None:
    names = ("for\u00eat", "fore\u0302t", "water")  # as on Linux and as on macOS
    said = r"labels: 'for\xeat' and 'fore\u0302t' may be one class in different spellings"
    assert class_warnings("labels", names) == [said]

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from adagc.datasets.collection import Collection
from adagc.datasets.folder import folder_collection
from adagc.errors import AdagcError, DataError, UsageError
from adagc.labels import LabelTable
from fakes import picture


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(20):
        folder = "forest" if i < 10 else "deep/er/water"
        picture(tmp_path / "images" / folder / f"{i:02d}.jpg", seed=i)
    return tmp_path / "images"


def sizes(collection: Collection) -> dict[str, int]:
    return {name: len(rows) for name, rows in collection.splits.items()}


def names(collection: Collection, part: str) -> list[str]:
    return [collection.images.names[i] for i in collection.splits[part]]


def label_file(path: Path, rows: dict[str, str]) -> Path:
    path.write_text("image,label\n" + "".join(f"{k},{v}\n" for k, v in rows.items()))
    return path


def truth_file(path: Path, images: list[str], classes: str = "field,tree,water") -> Path:
    count = len(classes.split(","))
    bits = [",".join(str((i >> c) & 1) for c in range(count)) for i in range(len(images))]
    lines = [f"{image},{row}" for image, row in zip(images, bits, strict=True)]
    path.write_text("\n".join([f"image,{classes}", *lines]) + "\n")
    return path


def test_plain_folder(root: Path) -> None:
    (root / "notes.txt").write_text("not an image")
    picture(root / ".hidden" / "a.jpg")
    picture(root / ".hidden.jpg")
    data = folder_collection(root)
    assert data.images.names[:1] == ("deep/er/water/10",)
    assert set(data.images.names) >= {"forest/00", "deep/er/water/19"}
    assert len(data.images) == 20
    assert data.images.shape == (3, 16, 16)
    assert sizes(data) == {"train": 16, "val": 4}
    assert data.truth is None
    assert data.classes == ()
    assert data.notes == ("no truth was given, so no test split was set apart",)
    assert Counter(name.split("/")[0] for name in names(data, "val")) == {"forest": 2, "deep": 2}


def test_same_stem_keeps_the_extension(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.png", "b.jpg"):
        picture(tmp_path / "images" / name)
    data = folder_collection(tmp_path / "images")
    assert data.images.names == ("a.jpg", "a.png", "b")


def test_labels_stratify_and_name_classes(root: Path, tmp_path: Path) -> None:
    rows = {f"{i:02d}": "rare" if i % 4 == 0 else "common" for i in range(19)}  # 19 has none
    file = label_file(tmp_path / "labels.csv", rows)
    data = folder_collection(root, labels=file, val_share=0.4)
    assert data.classes == ("common", "rare")
    assert len(data.images) == 20
    picked = Counter(rows.get(name[-2:]) for name in names(data, "val"))
    assert picked["rare"] == 2
    assert picked["common"] in (5, 6)
    other = folder_collection(root, labels=file, val_share=0.4, seed=1)
    assert names(other, "val") != names(data, "val")


def test_truth_gives_a_test_part(root: Path, tmp_path: Path) -> None:
    file = truth_file(tmp_path / "truth.csv", [f"{i:02d}.jpg" for i in range(20)])
    data = folder_collection(root, truth=file)
    assert sizes(data) == {"train": 12, "val": 4, "test": 4}
    assert data.classes == ("field", "tree", "water")
    assert data.truth is not None
    for name, row in zip(data.images.names, data.truth, strict=True):
        i = int(name[-2:])
        assert row.tolist() == [bool(i >> c & 1) for c in range(3)]
    assert data.notes == ()


def test_test_images_have_truth(root: Path, tmp_path: Path) -> None:
    file = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(10)])
    data = folder_collection(root, truth=file, test_share=0.5, val_share=0.25)
    assert sizes(data) == {"train": 10, "val": 5, "test": 5}
    assert all(int(name[-2:]) < 10 for name in names(data, "test"))
    assert data.notes == ("10 of 20 images have no row in the truth",)


def test_truth_names_classes_that_labels_lack(root: Path, tmp_path: Path) -> None:
    truth = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(20)])
    labels = label_file(tmp_path / "labels.csv", {"03": "tree", "04": "water"})
    assert folder_collection(root, truth=truth, labels=labels).classes == ("field", "tree", "water")
    order = ("water", "tree", "field")
    turned = folder_collection(root, truth=truth, labels=labels, classes=order)
    plain = folder_collection(root, truth=truth)
    assert turned.classes == order
    assert turned.truth is not None
    assert plain.truth is not None
    np.testing.assert_array_equal(turned.truth, plain.truth[:, ::-1])
    wrong = label_file(tmp_path / "wrong.csv", {"03": "lake"})
    with pytest.raises(AdagcError, match="lake"):
        folder_collection(root, truth=truth, labels=wrong)


def test_tables_in_memory(root: Path) -> None:
    images = tuple(f"{i:02d}" for i in range(20))
    table = LabelTable(images, ("b", "a"), np.eye(2, dtype=np.int8)[np.arange(20) % 2])
    data = folder_collection(root, truth=table, classes=("a", "b"))
    assert data.truth is not None
    assert data.truth[list(data.images.names).index("forest/00")].tolist() == [False, True]
    with pytest.raises(DataError, match="class 'b' is not one of a, c"):
        folder_collection(root, truth=table, classes=("a", "c"))


@pytest.mark.parametrize("called", [("train", "val", "test"), ("Training", "valid", "TEST")])
def test_split_folders(called: tuple[str, str, str], tmp_path: Path) -> None:
    for part, count in zip(called, (5, 3, 2), strict=True):
        for i in range(count):
            picture(tmp_path / "images" / part / f"{part}{i}.png")
    picture(tmp_path / "images" / "spare" / "x.png")
    data = folder_collection(tmp_path / "images")
    assert sizes(data) == {"train": 5, "val": 3, "test": 2}
    assert all(name.startswith(called[1]) for name in names(data, "val"))
    assert data.notes == ("1 images are in no split",)


def test_missing_validation_is_taken_from_train(tmp_path: Path) -> None:
    for part, count in (("train", 10), ("test", 3)):
        for i in range(count):
            picture(tmp_path / "images" / part / "a" / f"{i}.png")
    data = folder_collection(tmp_path / "images")
    assert sizes(data) == {"train": 8, "val": 2, "test": 3}
    assert "2 of train were taken" in data.notes[0]
    assert all(name.startswith("test/") for name in names(data, "test"))


def test_split_file(root: Path, tmp_path: Path) -> None:
    parts = ["train"] * 10 + ["validation"] * 4 + ["Test"] * 3
    rows = [f"{i:02d}.jpg,{part}" for i, part in enumerate(parts)]
    file = tmp_path / "split.csv"
    file.write_text("# made by hand\nimage,split\n" + "\n".join(rows) + "\n")
    data = folder_collection(root, split=file)
    assert sizes(data) == {"train": 10, "val": 4, "test": 3}
    assert sorted(name[-2:] for name in names(data, "test")) == ["14", "15", "16"]
    assert data.notes == ("3 images are in no split",)


@pytest.mark.parametrize("between", [";", "\t"])
def test_a_split_file_is_separated_as_label_files_are(
    between: str, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "split.csv"
    rows = [f"{i:02d}.jpg{between}{'train' if i < 12 else 'test'}" for i in range(20)]
    file.write_text("\ufeff" + "\r\n".join([f"Image{between}Split", *rows]), encoding="utf-8")
    assert len(folder_collection(root, split=file).splits["test"]) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image;split\n", "has a header but no rows"),
        ("", "line 1: the first line must be the header 'image,split', not ''"),
        ("00,train\n01,val\n", "must be the header 'image,split', not '00,train'"),
        ("image,split,fold\n00,train,1\n", "must be the header 'image,split'"),
        ("image,split\n00,train\n00,test\n", "line 3: image '00' is already on line 2"),
        ('image,split\n00,"train\n01,test\n', "line 2: a quotation mark opens a cell"),
        (f"image,split\n00,{'x' * 200_000}\n", "line 2: a cell has more than 131,072 characters"),
        ("image,split\n00,train\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("image,split\n00,training\n01,holdout\n", "line 3: expected .* not '01,holdout'"),
        ("image,split\n00,train\n99,val\n", "99"),
        ("image,split\n00,test\n", "no image is left for training"),
    ],
)
def test_bad_split_file(text: str | bytes, message: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "split.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AdagcError, match=message):
        folder_collection(root, split=file)


def test_bands(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for i in range(5):
        picture(tmp_path / "four" / f"{i}.png", bands=4)
        picture(tmp_path / "grey" / f"{i}.png", bands=1)
    root.mkdir()
    np.save(root / "a.npy", np.zeros((6, 8, 8), np.uint16))
    np.save(root / "b.npy", np.zeros((6, 8, 8), np.uint16))
    assert folder_collection(root).images.bands == tuple(f"band_{i}" for i in range(1, 7))
    assert folder_collection(root).images.dtype == np.uint16
    assert folder_collection(tmp_path / "grey").images.bands == ("grey",)
    three = folder_collection(tmp_path / "four", bands=("red", "green", "blue"))
    assert three.images.shape == (3, 16, 16)
    four = folder_collection(tmp_path / "four", bands=("red", "green", "blue", "nir"))
    assert four.images.shape == (4, 16, 16)
    assert four.images.gather(np.array([0]))[0, 3].any()
    with pytest.raises(DataError, match=r"2 band names \(a, b\) for images of 6 bands"):
        folder_collection(root, bands=("a", "b"))


def test_unreadable_and_wrong_shares(root: Path) -> None:
    (root / "forest" / "00.jpg").write_bytes(b"broken")
    with pytest.raises(DataError, match="1 of 20 images cannot be read"):
        folder_collection(root)
    data = folder_collection(root, skip_unreadable=True)
    assert len(data.images) == 19
    assert data.notes[0] == "1 unreadable images were left out: forest/00"
    assert data.left_out == ("forest/00",)
    with pytest.raises(UsageError, match="leave nothing to train on"):
        folder_collection(root, val_share=0.5, test_share=0.5)
    (root / "empty").mkdir()
    with pytest.raises(DataError, match="no images found"):
        folder_collection(root / "empty")
    with pytest.raises(DataError, match="no such folder"):
        folder_collection(root / "nowhere")


# -- clean labels of some images ---------------------------------------------------------------


def test_clean_labels_of_images_that_cannot_be_trained_on_all_test(
    root: Path, tmp_path: Path
) -> None:
    """Twelve images have a label, eight others complete labels: the eight test, however many."""
    labels = label_file(tmp_path / "labels.csv", {f"{i:02d}": "tree" for i in range(12)})
    truth = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(12, 20)])
    for seed in range(3):
        data = folder_collection(root, labels=labels, truth=truth, seed=seed)
        assert sorted(name[-2:] for name in names(data, "test")) == [str(i) for i in range(12, 20)]
        assert sizes(data) == {"train": 9, "val": 3, "test": 8}


def test_images_with_both_kinds_of_labels_keep_their_place(root: Path, tmp_path: Path) -> None:
    """Six that cannot be trained on are more than the share of 20 %: no other one is taken."""
    labels = label_file(tmp_path / "labels.csv", {f"{i:02d}": "tree" for i in range(14)})
    truth = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(8, 20)])
    data = folder_collection(root, labels=labels, truth=truth)
    assert sorted(name[-2:] for name in names(data, "test")) == [str(i) for i in range(14, 20)]


def test_few_images_with_complete_labels_all_test(root: Path, tmp_path: Path) -> None:
    """All images have a label: those with complete ones test, up to the share of all images."""
    labels = label_file(tmp_path / "labels.csv", {f"{i:02d}": "tree" for i in range(20)})
    few = truth_file(tmp_path / "few.csv", ["01", "05", "11"])
    data = folder_collection(root, labels=labels, truth=few)
    assert sorted(name[-2:] for name in names(data, "test")) == ["01", "05", "11"]
    many = truth_file(tmp_path / "many.csv", [f"{i:02d}" for i in range(15)])
    assert sizes(folder_collection(root, labels=labels, truth=many)) == {
        "train": 12,
        "val": 4,
        "test": 4,
    }


def test_one_image_without_a_label_is_not_the_only_test_image(root: Path, tmp_path: Path) -> None:
    labels = label_file(tmp_path / "labels.csv", {f"{i:02d}": "tree" for i in range(19)})
    truth = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(20)])
    data = folder_collection(root, labels=labels, truth=truth)
    assert sizes(data) == {"train": 12, "val": 4, "test": 4}
    assert "19" in [name[-2:] for name in names(data, "test")]


def test_a_given_split_decides(root: Path, tmp_path: Path) -> None:
    labels = label_file(tmp_path / "labels.csv", {f"{i:02d}": "tree" for i in range(12)})
    truth = truth_file(tmp_path / "truth.csv", [f"{i:02d}" for i in range(10, 20)])
    parts = {**{f"{i:02d}": "train" for i in range(8)}, "08": "val", "09": "val", "10": "val"}
    file = tmp_path / "split.csv"

    def divided(**more: str) -> Collection:
        rows = {**parts, **{name[1:]: part for name, part in more.items()}}
        file.write_text("image,split\n" + "".join(f"{k},{v}\n" for k, v in rows.items()))
        return folder_collection(root, labels=labels, truth=truth, split=file)

    named = divided(_18="test")
    assert [name[-2:] for name in names(named, "test")] == ["18"]
    unnamed = divided()  # no test image is named: all others with complete labels
    assert sorted(name[-2:] for name in names(unnamed, "test")) == [str(i) for i in range(11, 20)]
    assert "10" in [name[-2:] for name in names(unnamed, "val")]


# -- unreadable images -------------------------------------------------------------------------


def test_labels_of_an_unreadable_image_do_not_matter(root: Path, tmp_path: Path) -> None:
    """Observed labels, complete labels and the split may all name an image that is skipped."""
    (root / "forest" / "00.jpg").write_bytes(b"broken")
    every = [f"{i:02d}" for i in range(20)]
    labels = label_file(tmp_path / "labels.csv", dict.fromkeys(every, "tree"))
    truth = truth_file(tmp_path / "truth.csv", [f"{name}.jpg" for name in every])
    split = tmp_path / "split.csv"
    split.write_text("image,split\n" + "".join(f"{n},{'train' if n < '12' else 'test'}\n"
                                               for n in every))  # fmt: skip
    data = folder_collection(root, labels=labels, truth=truth, split=split, skip_unreadable=True)
    assert len(data.images) == 19
    assert data.observed_values is not None
    assert (data.observed_values > 0).any(axis=1).all()
    label_file(tmp_path / "labels.csv", {**dict.fromkeys(every, "tree"), "99": "tree"})
    with pytest.raises(AdagcError, match="'99' is not among the 19 images"):
        folder_collection(root, labels=labels, truth=truth, skip_unreadable=True)


def test_names_do_not_depend_on_unreadable_files(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.png", "b.png"):
        picture(tmp_path / "images" / name)
    (tmp_path / "images" / "a.jpg").write_bytes(b"broken")
    data = folder_collection(tmp_path / "images", skip_unreadable=True)
    assert data.images.names == ("a.png", "b")
    assert data.left_out == ("a.jpg",)

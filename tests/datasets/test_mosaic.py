from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from adagc.cli import main
from adagc.datasets import Collection, open_collection
from adagc.datasets.mosaic import MINIMUM_AREA, mosaic_collection
from adagc.errors import DataError, LabelFileError, UsageError
from adagc.images.mosaic.layout import MOST, PATCHES, divide
from adagc.images.mosaic.scenes import MosaicScenes
from adagc.images.synthetic.noise import SceneNoise, smooth, smooth_by_sums
from adagc.labels import LabelTable, simulate_dominant, write_areas, write_labels
from adagc.training.config import RunConfig
from adagc.training.contents import contents
from adagc.training.inputs import open_configured, split_text
from adagc.training.observe import simulate
from fakes import fake_aid, fake_classes, fake_ucmerced, picture

CLASSES = ("beach", "forest", "meadow", "port")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classes")
    fake_classes(root / "images")
    return root / "images"


@pytest.fixture(scope="module")
def opened(folder: Path) -> Callable[..., Collection]:
    def open_(**options) -> Collection:
        size = options.pop("size", 24)
        return mosaic_collection(folder, size=size, cache=folder.parent / "cache", **options)

    return open_


@pytest.fixture(scope="module")
def collection(opened) -> Collection:
    return opened(scenes=40)


def everything(collection: Collection) -> NDArray[np.uint8]:
    return collection.images.gather(np.arange(len(collection.images)))


# -- labels, areas and maps ----------------------------------------------------------------------


def test_the_collection_has_the_announced_shape(collection):
    assert collection.classes == CLASSES
    assert collection.images.shape == (3, 24, 24)
    assert collection.images.bands == ("red", "green", "blue")
    assert collection.images.dtype == collection.images.depth == np.uint8
    assert {k: len(v) for k, v in collection.splits.items()} == {"train": 40, "val": 20, "test": 40}
    rows = np.concatenate([*collection.splits.values()])
    assert rows.tolist() == list(range(100))
    assert len(set(collection.images.names)) == 100
    assert collection.images.names[7] == "mosaic_000007"
    assert any("research only" in note for note in collection.notes)


def test_labels_and_areas_are_those_of_the_maps(collection):
    np.testing.assert_allclose(collection.areas.sum(axis=1), 1, atol=1e-6)
    for row in range(len(collection.images)):
        pixels = collection.images.maps[row].ravel().tolist()
        for c in range(len(CLASSES)):
            share = pixels.count(c) / len(pixels)
            assert collection.areas[row, c] == pytest.approx(share, abs=1e-6)
            assert collection.truth[row, c] == (share >= MINIMUM_AREA)
    assert collection.truth.any(axis=1).all()


def test_every_pixel_comes_from_an_image_of_its_class(collection):
    np.testing.assert_array_equal(everything(collection)[:, 0], 10 * collection.images.maps)


def test_splits_share_no_source_image(collection):
    values, maps = everything(collection), collection.images.maps
    used = {}
    for split, rows in collection.splits.items():
        pairs = np.stack([maps[rows].ravel(), values[rows, 1].ravel()], axis=1)
        used[split] = {tuple(pair) for pair in np.unique(pairs, axis=0).tolist()}
        named = {name for row in rows for name in collection.images.made_from(row)}
        assert named == {f"{CLASSES[c]}/{CLASSES[c]}_{green // 10}" for c, green in used[split]}
    assert not used["train"] & used["val"]
    assert not used["train"] & used["test"]
    assert not used["val"] & used["test"]
    assert {c for c, _ in used["test"]} == {c for c, _ in used["val"]} == set(range(4))


def test_dominant_labels_are_the_largest_areas(collection):
    table = simulate(collection, "dominant", 5)
    rows = np.concatenate([collection.splits["train"], collection.splits["val"]])
    np.testing.assert_array_equal(table.values, simulate_dominant(collection.areas[rows], 5))
    assert (table.values.sum(axis=1) == 1).all()


def test_arrays_carry_areas_for_dominant_labels(collection, tmp_path):
    """As `experiments/features.py mosaic` writes them."""
    names = collection.images.names
    values = everything(collection).mean(axis=(2, 3), dtype=np.float32)
    np.save(tmp_path / "embeddings.npy", values)
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    truth, split = tmp_path / "truth.csv", tmp_path / "split.csv"
    write_labels(LabelTable(names, CLASSES, collection.truth.astype(np.int8)), truth)
    split.write_text(split_text(collection))
    settings = {"data": "array", "root": str(tmp_path), "truth": str(truth), "split": str(split)}
    with pytest.raises(UsageError, match="needs the area of each class"):
        simulate(open_configured(RunConfig(**settings)), "dominant", 1)
    before = contents(settings)

    write_areas(tmp_path / "areas.csv", names, CLASSES, collection.areas)
    assert contents(settings).keys() - before.keys() == {"areas"}
    arrays = open_configured(RunConfig(**settings))
    np.testing.assert_array_equal(arrays.areas, collection.areas)
    np.testing.assert_array_equal(
        simulate(arrays, "dominant", 1).values, simulate(collection, "dominant", 1).values
    )
    assert open_collection("array", tmp_path).areas is None  # not without clean labels

    write_areas(tmp_path / "areas.csv", names, ("a", *CLASSES[1:]), collection.areas)
    with pytest.raises(LabelFileError, match=r"areas.csv, line 1: the header must be image and"):
        open_configured(RunConfig(**settings))


# -- determinism ---------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(opened):
    one, two, other = (opened(scenes=12, seed=seed) for seed in (3, 3, 4))
    assert everything(one).tobytes() == everything(two).tobytes()
    np.testing.assert_array_equal(one.images.maps, two.images.maps)
    assert not np.array_equal(one.images.maps, other.images.maps)
    again = pickle.loads(pickle.dumps(one.images))
    assert everything(one).tobytes() == again.gather(np.arange(len(again))).tobytes()


def test_a_scene_does_not_depend_on_the_scenes_it_is_made_with(opened, monkeypatch):
    small = opened(scenes=6, size=32)
    monkeypatch.setattr("adagc.images.mosaic.scenes._PIXELS_AT_ONCE", 5 * 32**2)
    large = opened(scenes=17, size=32)
    for split in small.splits:
        rows, more = small.splits[split], large.splits[split][: len(small.splits[split])]
        assert [small.images.names[i] for i in rows] == [large.images.names[i] for i in more]
        np.testing.assert_array_equal(small.images.gather(rows), large.images.gather(more))
        np.testing.assert_array_equal(small.areas[rows], large.areas[more])
    mixed = large.images.gather(np.array([30, 2, 2]))
    np.testing.assert_array_equal(mixed[1:], large.images.gather(np.array([2, 2])))


def test_gather_returns_a_copy(collection):
    first = collection.images.gather(np.array([3]))
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(collection.images.gather(np.array([3])), kept)


# -- how patches are cut and joined --------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 24, 50])  # 50: sources of 20 pixels are mirrored
def test_patches_are_turned_and_mirrored_copies_of_their_sources(opened, size):
    """The vectorised joining against one that turns whole images and pads them."""
    images = opened(scenes=8, size=size).images
    values, turns = images.gather(np.arange(len(images))), set()
    for row in range(len(images)):
        for c in np.unique(images.maps[row]):
            patch = images._patches[row, c]
            source = images._sources.gather(images._rows[row, [patch]])[0]
            turn = images._turns[row, patch]
            turns.add(int(turn))
            if turn & 4:
                source = source.transpose(0, 2, 1)
            source = source[:, :: -1 if turn & 1 else 1, :: -1 if turn & 2 else 1]
            wide = np.pad(source, ((0, 0), (3 * size, 3 * size), (3 * size, 3 * size)), "symmetric")
            top, left = 3 * size - images._corners[row, patch]
            shown = wide[:, top : top + size, left : left + size]
            mask = images.maps[row] == c
            np.testing.assert_array_equal(values[row][:, mask], shown[:, mask])
    assert len(turns) == 8


def test_a_source_that_is_large_enough_is_not_mirrored(opened):
    images = opened(scenes=30, size=20).images
    for row in range(len(images)):
        for c in np.unique(images.maps[row]):
            corner = images._corners[row, images._patches[row, c]]
            for axis in (0, 1):
                covered = np.flatnonzero((images.maps[row] == c).any(axis=1 - axis))
                assert corner[axis] <= covered[0]
                assert covered[-1] < corner[axis] + 20


def test_about_three_labels_and_coherent_cells_with_irregular_borders():
    cells = divide(SceneNoise(0, np.arange(800), stream=0), 48)
    areas = np.stack([(cells == patch).mean(axis=(1, 2)) for patch in range(MOST)], axis=1)
    labels = (areas >= MINIMUM_AREA).sum(axis=1)
    assert 2.85 < labels.mean() < 3.15
    assert set(labels) == set(range(1, MOST + 1))
    assert np.bincount(labels, minlength=7)[1] / 800 == pytest.approx(PATCHES[0], abs=0.04)
    assert 0.5 < areas.max(axis=1).mean() < 0.65  # the dominant class leaves room for others
    assert (cells[:, :, 1:] == cells[:, :, :-1]).mean() > 0.93
    # Straight borders would move by the same step from row to row.
    two = cells[(areas > 0.2).sum(axis=1) == 2]
    border = (two[:, :, 1:] != two[:, :, :-1]).argmax(axis=2).astype(float)
    assert np.abs(np.diff(border, n=2, axis=1)).mean() > 1


def test_a_larger_size_shows_the_same_borders():
    coarse, fine = (divide(SceneNoise(1, np.arange(40), stream=0), size) for size in (48, 96))
    assert (fine[:, ::2, ::2] == coarse).mean() > 0.93


def test_sums_of_four_knots_are_the_matrix_product():
    knots = np.random.default_rng(0).standard_normal((3, 2, 9, 9)).astype(np.float32)
    for size in (5, 16, 41):
        np.testing.assert_allclose(smooth_by_sums(knots, size), smooth(knots, size), atol=1e-5)


# -- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene_folders", [True, False])
def test_aid_gives_the_types_of_its_scenes(scene_folders, tmp_path):
    fake_aid(tmp_path / "data" / "aid", scene_folders=scene_folders, suffix=".png")
    for root in (tmp_path / "data" / "aid", tmp_path / "data"):
        data = mosaic_collection(root, scenes=4, size=16, cache=tmp_path / "c")
        assert data.classes == ("airport", "beach")
    assert "20 images of 2 classes" in data.description


def test_ucmerced_gives_the_types_of_its_scenes(tmp_path):
    fake_ucmerced(tmp_path / "ucm")
    data = mosaic_collection(tmp_path / "ucm", scenes=4, size=16, cache=tmp_path / "c")
    assert data.classes == ("agricultural", "airplane")
    assert isinstance(data.images, MosaicScenes)


def test_any_bands_and_depth(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(10):
        path = tmp_path / "images" / "deep" / "ab"[i % 2] / f"{i}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, rng.integers(0, 4000, (5, 12, 12), dtype=np.uint16))
    data = mosaic_collection(tmp_path / "images", scenes=5, size=16, cache=tmp_path / "c")
    assert (data.classes, data.images.shape) == (("a", "b"), (5, 16, 16))
    assert everything(data).dtype == np.uint16
    assert "have 12 pixels per side and are mirrored" in data.notes[-1]


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path):
    root = tmp_path / "images"
    fake_classes(root, classes=("a", "b"), each=6)
    shutil.copy(root / "a" / "a_0.png", root / "b" / "copy.png")
    picture(root / "preview.png", side=(20, 20))
    (root / "a" / "broken.png").write_bytes(b"no")
    with pytest.raises(DataError, match="--skip-unreadable"):
        mosaic_collection(root, scenes=4, cache=tmp_path / "c")
    data = mosaic_collection(root, scenes=4, size=16, cache=tmp_path / "c", skip_unreadable=True)
    assert "12 images of 2 classes" in data.description
    for why in ("lie in no folder of a class", "cannot be read", "are copies of others"):
        assert f"1 images were left out, as they {why}" in data.notes
    used = {name for row in range(len(data.images)) for name in data.images.made_from(row)}
    assert "b/copy" not in used


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"classes": ("a",)}, "only the class 'a', but mosaics join images of two or more classes"),
        ({"classes": ()}, "no images in folders of classes, but mosaics join"),
        ({"classes": ("a", "b"), "each": 3}, "3 different images of the class 'a' are too few"),
    ],
)
def test_folders_that_do_not_suffice(layout, said, tmp_path, capsys):
    root = tmp_path / "images"
    root.mkdir()
    fake_classes(root, **layout)
    picture(root / "alone.png")
    words = ["train", "--data", "mosaic", "--root", str(root), "--scheme", "random"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "; give " in line


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 8}, "--size must be at least 16 and at most 512, not 8"),
        ({"size": 900}, "not 900"),
        ({"seed": -1}, "--split-seed must be at least 0, not -1"),
        ({"source_size": 0}, "--source-size"),
        ({"scenes": 600_001}, "choose 0 to 600000 scenes"),
    ],
)
def test_options_out_of_range_are_refused_before_any_work(tmp_path, options, named):
    with pytest.raises(UsageError) as caught:
        mosaic_collection(tmp_path / "nowhere", **options)
    assert named in str(caught.value)


def test_a_folder_that_is_missing(tmp_path, capsys):
    assert main(["inspect", "--data", "mosaic", "--root", str(tmp_path / "gone")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone" in line


# -- commands ------------------------------------------------------------------------------------


def test_inspect_tells_labels_areas_and_splits(folder, capsys, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(folder.parent / "cache"))
    words = ["inspect", "--data", "mosaic", "--root", str(folder), "--scenes", "20", "--size", "24"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["images"]) == ("mosaics", 50)
    assert told["splits"] == {"train": 20, "val": 10, "test": 20}
    data = mosaic_collection(folder, scenes=20, size=24, cache=folder.parent / "cache")
    assert told["truth"]["counts"] == dict(
        zip(CLASSES, data.truth.sum(axis=0).tolist(), strict=True)
    )
    assert sum(told["areas"]["largest"].values()) == 50
    assert told["areas"]["dominant"] == pytest.approx(data.areas.max(axis=1).mean())
    beach = data.areas[data.truth[:, 0], 0].mean()
    assert told["areas"]["mean"]["beach"] == pytest.approx(beach)
    assert main(words) == 0
    shown = capsys.readouterr().out
    for part in ("Areas", "Splits", "largest in", "derived work", "mean where labelled"):
        assert part in shown


def test_inspect_opens_any_kind(capsys):
    assert main(["inspect", "--data", "synthetic", "--scenes", "4", "--size", "16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["root"], told["images"], told["areas"] is None) == ("synthetic", 10, False)
    for words, said in (
        (["--data", "sythetic"], "did you mean 'synthetic'"),
        (["--data", "synthetic", "--scenes", "1"], "--scenes must be at least 4"),
        (["--data", "synthetic", "--nodata", "7"], "--nodata means nothing for --data synthetic"),
        (["--scenes", "9", "photos"], "--scenes needs --data"),
        ([], "ROOT is missing"),
    ):
        assert main(["inspect", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


@pytest.mark.parametrize("scheme", ["random", "dominant"])
def test_train_and_report(folder, scheme, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(folder.parent / "cache"))
    run = tmp_path / "run"
    words = [
        "train", "--data", "mosaic", "--root", str(folder), "--scenes", "16", "--size", "24",
        "--scheme", scheme, "--method", "AN", "--backbone", "test_resnet", "--weights", "none",
        "--epochs", "1", "--batch-size", "8", "--absent", "skip", "--out", str(run),
    ]  # fmt: skip
    assert main(words) == 0, capsys.readouterr().err
    assert json.loads((run / "scores.json").read_text())["images"] == 16
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<title>AN on mosaics</title>" in page
    assert page.count('alt="Image mosaic_') > 12
    assert "derived work" in page
    assert main(["evaluate", str(run)]) == 0

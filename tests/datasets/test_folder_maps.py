"""Maps of a user's own folder: areas, clean labels and dominant labels come from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adagc.cli import main
from adagc.datasets.folder import folder_collection
from adagc.datasets.inspect.look import inspect_collection
from adagc.datasets.registry import open_collection
from adagc.errors import AdagcError, DataError, LabelFileError, UsageError
from adagc.labels import maps as maps_module
from adagc.labels import read_areas, read_labels, simulate_dominant, write_areas
from adagc.labels.map_folder import MapFolder, read_map_classes
from adagc.training.observe import simulate
from fakes import picture

# 5 and 6 are both water; 9 is a cloud, which is not labelled
MEANING = "code,class\n1,forest\n5,water\n6,water\n3,field\n"
CLASSES = ("forest", "water", "field")
ROWS = {"forest": (1,), "water": (5, 6), "field": (3,)}
SIDE = 20


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


def draw_map(seed):
    """Stripes of codes with random widths; the first column is a cloud."""
    rng = np.random.default_rng(seed)
    pixels = np.repeat(rng.choice([1, 3, 5, 6], 5), SIDE // 5)[None].repeat(SIDE, axis=0)
    pixels[:, 0] = 9
    return pixels.astype(np.uint8)


def shares(pixels):
    counts = np.array([np.isin(pixels, ROWS[name]).sum() for name in CLASSES], dtype=np.float64)
    return counts / max(counts.sum(), 1)


@pytest.fixture
def world(tmp_path):
    """Twenty images in two folders, their maps, and the file of codes."""
    expected = {}
    for i in range(20):
        name = f"{'north' if i % 2 else 'south'}/{i:02d}"
        picture(tmp_path / "images" / f"{name}.jpg", seed=i)
        pixels = draw_map(i)
        path = tmp_path / "maps" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        expected[name] = shares(pixels)
    (tmp_path / "codes.csv").write_text(MEANING)
    return tmp_path, expected


def open_world(root, **options):
    return folder_collection(
        root / "images", maps=root / "maps", map_classes=root / "codes.csv", **options
    )


def test_areas_and_clean_labels_come_from_maps(world):
    root, expected = world
    data = open_world(root, map_share=0.25)
    assert data.classes == CLASSES
    areas = np.array([expected[name] for name in data.images.names])
    np.testing.assert_allclose(data.areas, areas, rtol=1e-6)
    np.testing.assert_array_equal(data.truth, areas >= 0.25)
    assert (areas[areas > 0] < 0.25).sum() > 0  # the share decided something
    assert set(data.splits) == {"train", "val", "test"}
    assert any("at least 0.25 of the labelled pixels" in note for note in data.notes)


def test_a_class_counts_from_the_very_share_on(tmp_path):
    for i in range(6):
        picture(tmp_path / "images" / f"{i}.jpg", seed=i)
        pixels = np.ones((10, 10), np.uint8)
        pixels.flat[:i] = 3
        (tmp_path / "maps").mkdir(exist_ok=True)
        np.save(tmp_path / "maps" / f"{i}.npy", pixels)
    (tmp_path / "codes.csv").write_text(MEANING)
    truth = open_world(tmp_path).truth  # by default from 3 %
    assert truth[:, 2].tolist() == [False, False, False, True, True, True]


def test_dominant_labels_are_those_of_a_file_of_areas(world):
    root, _ = world
    data = open_world(root)
    table = simulate(data, "dominant", 0)
    rows = [data.images.names.index(name) for name in table.images]
    np.testing.assert_array_equal(
        table.values, simulate_dominant(data.areas[rows] * data.truth[rows], 0)
    )


def test_ties_are_decided_by_the_seed(tmp_path):
    for i in range(40):
        picture(tmp_path / "images" / f"{i}.jpg", seed=i)
        (tmp_path / "maps").mkdir(exist_ok=True)
        np.save(tmp_path / "maps" / f"{i}.npy", np.array([[1, 1, 5, 6, 9]]))
    (tmp_path / "codes.csv").write_text(MEANING)
    data = open_world(tmp_path)
    chosen = [simulate(data, "dominant", seed).values for seed in (0, 0, 1)]
    np.testing.assert_array_equal(chosen[0], chosen[1])
    assert (chosen[0] != chosen[2]).any()
    assert (chosen[0].sum(axis=0)[:2] > 8).all()


def test_a_table_of_clean_labels_comes_first(world):
    root, expected = world
    (root / "truth.csv").write_text(
        "image,field,forest,water\n" + "".join(f"{name},1,1,0\n" for name in list(expected)[:15])
    )
    data = open_world(root, truth=root / "truth.csv")
    assert data.classes == ("field", "forest", "water")
    assert data.known.sum() == 15
    assert data.truth[data.known].tolist() == [[True, True, False]] * 15
    areas = np.array([expected[name] for name in data.images.names])[:, [2, 0, 1]]
    np.testing.assert_allclose(data.areas, areas, rtol=1e-6)


def test_images_without_a_labelled_pixel_have_no_clean_labels(world):
    root, expected = world
    names = list(expected)
    (root / "maps" / f"{names[0]}.png").unlink()
    Image.fromarray(np.full((4, 4), 9, np.uint8)).save(root / "maps" / f"{names[1]}.png")
    data = open_world(root)
    known = dict(zip(data.images.names, data.known.tolist(), strict=True))
    assert [name for name in names if not known[name]] == names[:2]
    assert f"1 of 20 images have no map: {names[0]}" in data.notes
    assert f"1 maps have no labelled pixel: {names[1]}" in data.notes


@pytest.mark.parametrize("ending", ["_mask", ".labels", "_reference_map"])
def test_maps_may_have_an_ending_of_their_own(world, ending):
    root, expected = world
    for path in (root / "maps").rglob("*.png"):
        path.rename(path.with_name(f"{path.stem}{ending}.png"))
    data = open_world(root)
    areas = np.array([expected[name] for name in data.images.names])
    np.testing.assert_allclose(data.areas, areas, rtol=1e-6)


def test_maps_may_lie_in_the_folder_of_the_images(world):
    root, _ = world
    (root / "maps").rename(root / "images" / "maps")
    data = open_collection(
        "folder", root / "images", maps="maps", map_classes=str(root / "codes.csv")
    )
    assert len(data.images) == 20
    with pytest.raises(UsageError, match="is the folder of the images itself"):
        open_collection(
            "folder", root / "images", maps=str(root / "images"), map_classes=root / "codes.csv"
        )


@pytest.mark.parametrize("kind", ["array", "geoparquet"])
def test_rows_of_arrays_and_products_have_maps_too(world, kind):
    root, expected = world
    names = list(expected)
    vectors = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    if kind == "array":
        path = root / "embeddings.npy"
        np.save(path, vectors)
        (root / "embeddings.names.txt").write_text("\n".join(names))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        path = root / "product.parquet"
        table = pyarrow.table({"id": names, "embedding": vectors.tolist()})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    data = open_collection(
        kind, path, maps=root / "maps", map_classes=root / "codes.csv", map_share=0.25
    )
    areas = np.array([expected[name] for name in data.images.names])
    np.testing.assert_allclose(data.areas, areas, rtol=1e-6)
    np.testing.assert_array_equal(data.truth, areas >= 0.25)


def test_pixels_are_counted_once(world, monkeypatch):
    root, _ = world
    before = open_world(root).areas
    monkeypatch.setattr(maps_module, "count_codes", None)
    np.testing.assert_array_equal(open_world(root).areas, before)


def test_what_cannot_be_used_is_said(world):
    root, _ = world
    with pytest.raises(UsageError, match="--maps needs --map-classes"):
        folder_collection(root / "images", maps=root / "maps")
    with pytest.raises(UsageError, match="--map-classes needs --maps"):
        folder_collection(root / "images", map_classes=root / "codes.csv")
    with pytest.raises(DataError, match=r"no class 'water'; the classes are: .*; rename it, or"):
        open_world(root, classes=("forest", "field"))
    (root / "empty").mkdir()
    with pytest.raises(DataError, match="holds no maps"):
        folder_collection(root / "images", maps=root / "empty", map_classes=root / "codes.csv")
    Image.new("L", (4, 4)).save(root / "empty" / "else.png")
    with pytest.raises(DataError, match=r"no map has the name of an image \(else.png are maps"):
        folder_collection(root / "images", maps=root / "empty", map_classes=root / "codes.csv")
    (root / "maps" / "north" / "01.tif").write_bytes(b"II*\0")
    with pytest.raises(DataError, match=r"are both the image 'north/01'; remove one"):
        open_world(root)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("number,class\n1,a\n", "line 1: the first line must be the header 'code,class'"),
        ("code,class\n1,a\none,b\n", "line 3: expected a whole number and a class, not 'one'"),
        ("code,class\n1,a\n\n1,b\n", "line 4: the code 1 is there twice"),
        ("code,class\n1,\n", "line 2: class name '' is empty"),
        ("code,class\n", "names no class"),
    ],
)
def test_a_file_of_codes_is_checked(tmp_path, text, problem):
    (tmp_path / "codes.csv").write_text(text)
    with pytest.raises(LabelFileError, match=problem):
        read_map_classes(tmp_path / "codes.csv")


def test_a_file_of_codes_may_come_from_a_spreadsheet(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_bytes("\ufeff# from our GIS\nCode;Class\r\n-1;Wald, dicht\r\n2;Fluß\r\n".encode())
    assert read_map_classes(path) == {-1: "Wald, dicht", 2: "Fluß"}


def test_simulate_takes_maps(world, capsys):
    root, expected = world
    names = list(expected)
    present = {name: areas > 0 for name, areas in expected.items()}
    lines = [",".join([name, *map(str, present[name].astype(int))]) for name in names]
    (root / "truth.csv").write_text("\n".join(["image,forest,water,field", *lines]))
    command = ["simulate", str(root / "truth.csv"), "--scheme", "dominant", "--json"]
    out = root / "labels.csv"
    maps = ["--maps", str(root / "maps"), "--map-classes", str(root / "codes.csv")]
    assert main([*command, *maps, "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    write_areas(root / "areas.csv", names, CLASSES, np.array(list(expected.values()), np.float32))
    other = root / "other.csv"
    assert main([*command, "--areas", str(root / "areas.csv"), "--out", str(other)]) == 0
    assert out.read_text() == other.read_text()
    assert told["micro"] == json.loads(capsys.readouterr().out)["micro"] > 0
    clean = read_labels(root / "truth.csv")
    assert read_areas(root / "areas.csv", clean).shape == (20, 3)

    assert main([*command, "--out", str(root / "no.csv")]) == 2
    assert "either --areas" in capsys.readouterr().err
    (root / "maps" / f"{names[3]}.png").unlink()
    assert main([*command, *maps, "--out", str(root / "no.csv")]) == 1
    assert f"for 1 of 20 images ({names[3]})" in capsys.readouterr().err
    assert not (root / "no.csv").exists()


def test_inspect_shows_areas(world, capsys):
    root, _ = world
    words = [str(root / "images"), "--maps", str(root / "maps")]
    words += ["--map-classes", str(root / "codes.csv"), "--json"]
    assert main(["inspect", *words, "--data", "folder"]) == 0
    told = json.loads(capsys.readouterr().out)
    data = open_world(root)
    assert told["areas"]["largest"] == {
        name: int((data.areas.argmax(axis=1) == c).sum()) for c, name in enumerate(CLASSES)
    }
    assert told["areas"]["mean"] == inspect_collection(data, root="", kind="").areas.mean
    assert main(["inspect", *words]) == 2
    assert "--maps needs --data" in capsys.readouterr().err


def test_training_takes_dominant_labels_from_maps(world, capsys):
    root, _ = world
    out = root / "run"
    command = ["train", str(root / "images"), "--maps", str(root / "maps"), "--map-classes",
               str(root / "codes.csv"), "--scheme", "dominant", "--out", str(out), "--epochs", "1",
               "--batch-size", "4", "--backbone", "test_resnet", "--weights", "none", "--method",
               "AN", "--size", "16", "--accelerator", "cpu"]  # fmt: skip
    assert main(command) == 0
    data = open_world(root, size=16)
    labels = read_labels(out / "labels.csv")
    assert labels.meta["scheme"] == "dominant"
    rows = [data.images.names.index(name) for name in labels.images]
    areas = data.areas[rows] * data.truth[rows]
    assert (areas[labels.positive] == areas.max(axis=1)).all()
    assert (out / "scores.json").exists()  # tested on clean labels, which the maps are
    # another meaning of the codes is noticed on resuming
    (root / "codes.csv").write_text(MEANING.replace("3,field", "3,forest") + "7,field\n")
    assert main([*command, "--resume"]) != 0


def test_an_unreadable_map_stops_before_training(world):
    root, expected = world
    path = root / "maps" / f"{next(iter(expected))}.png"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(AdagcError, match="1 of 20 maps cannot be used"):
        open_world(root)


def test_the_folder_of_maps_is_where_it_says(world):
    root, _ = world
    opened = MapFolder.open(root / "maps", root / "codes.csv")
    assert opened.classes == CLASSES
    assert MapFolder.open(None, None) is None
    assert isinstance(opened.root, Path)

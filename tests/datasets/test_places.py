"""Splits by place: no two parts share a block, whatever the images and their reference system."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("rasterio", reason="rasterio is not installed")
pytest.importorskip("pyproj", reason="pyproj is not installed")
pytest.importorskip("shapely", reason="shapely is not installed")

import pyproj
import rasterio
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.transform import from_origin

from adagc.cli import main
from adagc.datasets import open_collection
from adagc.datasets.assemble import collect
from adagc.datasets.places import Places, read_place, split_by_place
from adagc.errors import DataError, UsageError
from adagc.images.array import ArrayScenes
from fakes import make_embedding_product, picture

SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}


class Placed(ArrayScenes):
    """Embeddings at places."""

    def __init__(self, shapes, crs, names=None):
        count = len(shapes)
        super().__init__(
            np.zeros((count, 2), np.float32), names or [f"{i:04d}" for i in range(count)]
        )
        self.shapes, self.system = shapes, crs

    def geometry(self, rows):
        return [self.shapes[row] for row in rows.tolist()]

    @property
    def crs(self):
        return self.system


def square(x, y, side=100.0):
    return shapely.to_wkb(shapely.box(x, y, x + side, y + side))


def blocks_in_metres(points, side):
    return {(math.floor(x / side), math.floor(y / side)) for x, y in points}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-9e4, 9e4), st.floats(-9e4, 9e4)), min_size=12, max_size=60, unique=True
    ),
    st.sampled_from([500.0, 7_000.0]),
    st.integers(0, 3),
)
def test_no_two_parts_share_a_block(corners, side, seed):
    corners += [(1e6 * k + 7e3 * i, 0.0) for k in (1, 2) for i in range(12)]  # enough blocks
    images = Placed([square(x, y) for x, y in corners], "EPSG:32633")
    parts, notes = split_by_place(images, side, SHARES, seed)
    rows = np.concatenate([*parts.values()])
    assert sorted(rows.tolist()) == list(range(len(corners)))
    cells = [
        blocks_in_metres([(corners[i][0] + 50, corners[i][1] + 50) for i in rows], side)
        for rows in parts.values()
    ]
    assert sum(map(len, cells)) == len(set.union(*cells))
    # the distance is that of the slow twin
    shapes = [shapely.box(x, y, x + 100, y + 100) for x, y in corners]
    least = min(
        shapes[i].distance(shapes[j])
        for one in parts
        for other in parts
        if one < other
        for i in parts[one]
        for j in parts[other]
    )
    assert f"{least:,.0f} m" in notes[0]


def test_degrees_are_moved_to_metres():
    # a grid of 40 x 40 points around Berlin, 1,000 m apart on the ground
    geod = pyproj.Geod(ellps="WGS84")
    points = []
    for i in range(40):
        east, north, _ = geod.fwd(13.4, 52.5, 90, 1000 * (i - 20))
        points += [geod.fwd(east, north, 0, 1000 * (k - 20))[:2] for k in range(40)]
    shapes = [shapely.to_wkb(shapely.Point(*point).buffer(1e-6)) for point in points]
    places = Places.of(Placed(shapes, "EPSG:4326"))
    sizes = np.bincount(places.blocks(5_000))
    assert 64 <= len(sizes) <= 81
    assert (sizes <= 25 + 5).all()
    one, other = np.array([0]), np.array([1])
    assert places.distance(one, other) == pytest.approx(1000, rel=2e-3)
    ends = np.array([0]), np.array([len(points) - 1])
    exact = geod.inv(*points[0], *points[-1])[2]
    assert places.distance(*ends) == pytest.approx(exact, rel=2e-3)


def test_places_at_the_date_line_are_near_each_other():
    shapes = [shapely.to_wkb(shapely.Point(x, 10).buffer(1e-6)) for x in (179.995, -179.995)]
    places = Places.of(Placed(shapes, "EPSG:4326"))
    assert places.distance(np.array([0]), np.array([1])) == pytest.approx(1096, rel=1e-2)


def test_feet_are_no_metres():
    feet = [square(2_000_000 + 1000 * i, 600_000) for i in range(2)]
    places = Places.of(Placed(feet, "EPSG:2229"))  # California, in US survey feet
    distance = places.distance(np.array([0]), np.array([1]))
    assert distance == pytest.approx(900 * 0.3048, rel=1e-2)


def write_tiff(path, x, y, system, step=10.0, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (3, 16, 16)).astype(np.uint8)
    with rasterio.open(
        path, "w", driver="GTiff", width=16, height=16, count=3, dtype="uint8", crs=system,
        transform=from_origin(x, y, step, step),
    ) as file:  # fmt: skip
        file.write(pixels)


@pytest.fixture
def tiffs(tmp_path, monkeypatch):
    """Forty GeoTIFFs of 160 m in ten groups that are 5 km apart, in two UTM zones."""
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    lines = ["image,label"]
    for i in range(40):
        group, member = divmod(i, 4)
        system = "EPSG:32632" if group < 5 else "EPSG:32633"
        name = f"{i:02d}_T{32 if group < 5 else 33}U{'MPQ'[group % 3]}C"
        x, y = 400_000 + 5_000 * group, 5_500_000 + 200 * member
        write_tiff(tmp_path / "images" / f"{name}.tif", x, y, system, seed=i)
        lines.append(f"{name},{'ab'[i % 2]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    (tmp_path / "truth.csv").write_text(
        "image,a,b\n"
        + "".join(f"{line.partition(',')[0]},1,{i % 2}\n" for i, line in enumerate(lines[1:]))
    )
    return tmp_path


def test_geotiffs_of_two_zones(tiffs):
    data = open_collection(
        "folder", tiffs / "images", truth=tiffs / "truth.csv", split_by_place="2000"
    )
    places = Places.of(data.images)
    blocks = places.blocks(2000)
    inside = [set(blocks[rows]) for rows in data.splits.values()]
    assert sum(map(len, inside)) == len(set(blocks)) >= 10
    for name, share in SHARES.items():
        assert abs(len(data.splits[name]) - 40 * share) <= 4
    # the zones are 6 degrees apart, so that the groups of the second lie elsewhere
    distance = places.distance(np.arange(20), np.arange(20, 40))
    assert 380_000 < distance < 450_000
    assert any(
        note.startswith("split by place into blocks of 2,000 m (")
        and "the distance between parts is " in note
        for note in data.notes
    )


def test_tiles_are_read_from_names(tiffs):
    data = open_collection(
        "folder", tiffs / "images", labels=tiffs / "labels.csv", split_by_place="tile"
    )
    assert set(data.splits) == {"train", "val"}
    tiles = np.array([name[3:] for name in data.images.names])
    assert not set(tiles[data.splits["train"]]) & set(tiles[data.splits["val"]])
    assert any("split by place into tiles (" in note and " m " in note for note in data.notes)


def test_touching_images_are_said_to_touch():
    images = Placed([square(100.0 * i, 0) for i in range(30)], "EPSG:32633")
    _, notes = split_by_place(images, 500, SHARES, 0)
    assert "touch or overlap: the distance between parts is 0 m" in notes[0]


def test_sizes_of_parts_with_sparse_truth(tiffs):
    lines = (tiffs / "truth.csv").read_text().splitlines()
    (tiffs / "some.csv").write_text("\n".join(lines[:21]))
    data = open_collection(
        "folder", tiffs / "images", truth=tiffs / "some.csv", split_by_place="2000",
        labels=tiffs / "labels.csv",
    )  # fmt: skip
    assert data.known[data.splits["test"]].all()
    places = Places.of(data.images).blocks(2000)
    inside = [set(places[rows]) for rows in data.splits.values()]
    assert len(set.union(*inside)) == sum(map(len, inside))


def test_collections_of_ones_own_images():
    images = Placed([square(1000.0 * i, 0) for i in range(10)], "EPSG:32633")
    assert set(collect(images, split_by_place="1000").splits) == {"train", "val"}
    blocks = Places.of(images).blocks(4000)
    parts = collect(images, split_by_place="4000").splits
    assert not set(blocks[parts["train"]]) & set(blocks[parts["val"]])


def test_rows_of_arrays_by_the_tiles_in_their_names(tmp_path):
    tiles = np.arange(40) % 5
    names = [f"S2_T33UU{'ABCDE'[tile]}_{i}" for i, tile in enumerate(tiles)]
    np.save(tmp_path / "x.npy", np.zeros((40, 3), np.float32))
    (tmp_path / "x.names.txt").write_text("\n".join(names))
    parts = open_collection("array", tmp_path / "x.npy", split_by_place="tile").splits
    assert {len(rows) for rows in parts.values()} == {32, 8}
    assert not set(tiles[parts["train"]]) & set(tiles[parts["val"]])


def test_what_cannot_be_split_is_said(tmp_path, tiffs):
    with pytest.raises(UsageError, match="metres, or tile, not '-5'"):
        read_place("-5")
    with pytest.raises(UsageError, match="not 'nan'"):
        read_place("nan")
    assert read_place("2.5e3") == 2500
    one = Placed([square(0, 0)] * 9, "EPSG:32633")
    with pytest.raises(DataError, match=r"all 9 images lie in 1 blocks of 1,000 m.*smaller blocks"):
        split_by_place(one, 1000, SHARES, 0)
    with pytest.raises(DataError, match=r"names of images have no Sentinel-2 tile .*\(0000, 0001"):
        split_by_place(one, "tile", SHARES, 0)
    with pytest.raises(DataError, match="1 of 2 images do not say where on earth"):
        split_by_place(Placed([square(0, 0), None], "EPSG:32633"), 10, SHARES, 0)
    with pytest.raises(DataError, match="no coordinate reference system"):
        split_by_place(Placed([square(0, 0)] * 3, None), 10, SHARES, 0)
    picture(tmp_path / "plain" / "a.jpg")
    with pytest.raises(DataError, match="do not say where on earth"):
        open_collection("folder", tmp_path / "plain", split_by_place="100")
    (tmp_path / "split.csv").write_text("image,split\n")
    with pytest.raises(UsageError, match="--split and --split-by-place"):
        open_collection(
            "folder", tiffs / "images", split=tmp_path / "split.csv", split_by_place="100"
        )


def test_embeddings_with_places(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("geopandas")
    path = tmp_path / "product.parquet"
    make_embedding_product(path, "Earth Index", np.zeros((60, 3), np.float32))
    data = open_collection("geoparquet", path, split_by_place="200")
    places = Places.of(data.images).blocks(200)
    assert not set(places[data.splits["train"]]) & set(places[data.splits["val"]])


def test_train_and_inspect_tell_the_distance(tiffs, capsys):
    words = [
        str(tiffs / "images"),
        "--labels",
        str(tiffs / "labels.csv"),
        "--split-by-place",
        "2000",
    ]
    assert main(["inspect", *words, "--data", "folder", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("the distance between parts is" in note for note in told["notes"])
    assert told["splits"] == {"train": 32, "val": 8}
    out = tiffs / "run"
    training = ["--out", str(out), "--epochs", "1", "--batch-size", "8", "--weights", "none",
                "--backbone", "test_resnet", "--method", "AN", "--accelerator", "cpu"]  # fmt: skip
    assert main(["train", *words, *training]) == 0
    assert "the distance between parts is" in capsys.readouterr().err
    # another split is another run
    assert main(["train", *words[:-1], "9000", *training, "--resume"]) != 0

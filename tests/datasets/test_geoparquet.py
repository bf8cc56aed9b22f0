"""Embedding products as they are published: columns, ids, places, labels, training, inspection."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("geopandas", reason="needs geopandas")
pytest.importorskip("shapely", reason="needs shapely")

import geopandas
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from adagc.cli import main
from adagc.datasets import open_collection
from adagc.errors import AdagcError, DataError, LabelFileError
from adagc.images.parquet import ParquetScenes
from adagc.labels import read_labels
from adagc.tables import Table, write
from fakes import make_embedding_product, picture

LAYOUTS = ("Clay", "Major TOM", "Earth Index")


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_is_read_with_ids_and_places(tmp_path, vectors, layout):
    path = tmp_path / "product.parquet"
    ids = make_embedding_product(path, layout, vectors)
    scenes = ParquetScenes(path)
    assert scenes.names == tuple(ids)
    assert scenes.dtype == np.float32
    np.testing.assert_array_equal(scenes.gather(np.array([3, 0, 39])), vectors[[3, 0, 39]])
    assert scenes.crs == "EPSG:4326"
    expected = geopandas.read_parquet(path).geometry.to_wkb().tolist()
    assert scenes.geometry(np.array([5, 1])) == [expected[5], expected[1]]
    assert f"as {layout} publishes them" in scenes.notes[0]


def test_a_folder_of_files_is_one_data_set(tmp_path, vectors):
    (tmp_path / "deep").mkdir()
    first = make_embedding_product(tmp_path / "31UDQ.parquet", "Earth Index", vectors[:15])
    second = make_embedding_product(
        tmp_path / "deep" / "31UDR.gpq", "Earth Index", vectors[15:], start=15
    )
    (tmp_path / "_metadata.parquet").write_bytes(b"other programs leave such files")
    scenes = ParquetScenes(tmp_path)
    assert scenes.names == (*first, *second)
    np.testing.assert_array_equal(scenes.gather(np.arange(40)), vectors)
    places = shapely.from_wkb(scenes.geometry(np.arange(40)))
    assert [round(place.bounds[0], 6) for place in places] == [round(0.1 * i, 6) for i in range(40)]


def test_rows_without_ids_of_their_own_are_numbered_by_file(tmp_path, vectors):
    table = pa.table({"id": ["same"] * 40, "embedding": list(vectors)})
    pq.write_table(table, tmp_path / "tile.parquet")
    scenes = ParquetScenes(tmp_path / "tile.parquet")
    assert scenes.names[:2] == ("tile/00000", "tile/00001")
    assert scenes.geometry(np.arange(2)) == [None, None]
    assert scenes.crs is None
    assert "numbered" in scenes.notes[0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.list_(pa.float64()), np.float32),
        (pa.large_list(pa.float32()), np.float32),
        (pa.list_(pa.float32(), 6), np.float32),
        (pa.list_(pa.float16()), np.float16),
        (pa.list_(pa.int8()), np.float32),
    ],
)
def test_lists_of_any_numbers_are_read(tmp_path, vectors, kind, expected):
    values = np.rint(vectors * 20)
    if pa.types.is_float16(kind.value_type):
        values = values.astype(np.float16)
    column = pa.array([row.tolist() if row.dtype != np.float16 else row for row in values], kind)
    pq.write_table(pa.table({"embeddings": column}), tmp_path / "x.parquet", row_group_size=9)
    scenes = ParquetScenes(tmp_path / "x.parquet")
    assert scenes.dtype == expected
    np.testing.assert_array_equal(scenes.gather(np.arange(40)), values)


def test_a_tensor_column_is_read(tmp_path, vectors):
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(vectors)
    pq.write_table(pa.table({"embedding": tensor}), tmp_path / "x.parquet")
    np.testing.assert_array_equal(
        ParquetScenes(tmp_path / "x.parquet").gather(np.arange(40)), vectors
    )


def test_shapes_in_geoarrow_encoding_are_read(tmp_path, vectors):
    shapes = [shapely.Point(i, 50) for i in range(40)]
    frame = geopandas.GeoDataFrame({"embedding": list(vectors)}, geometry=shapes, crs=4326)
    frame.to_parquet(tmp_path / "x.parquet", geometry_encoding="geoarrow")
    assert ParquetScenes(tmp_path / "x.parquet").geometry(np.array([7])) == [shapes[7].wkb]


def test_the_reference_system_is_what_geoparquet_says(tmp_path, vectors):
    def crs(column: dict) -> str | None:
        geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
        table = pa.table({"embedding": list(vectors), "geometry": [shapely.Point(0, 0).wkb] * 40})
        named = table.replace_schema_metadata({"geo": json.dumps(geo)})
        pq.write_table(named, tmp_path / "x.parquet")
        return ParquetScenes(tmp_path / "x.parquet").crs

    plain = {"encoding": "WKB", "geometry_types": []}
    assert crs(plain) == "OGC:CRS84"  # the default of the standard
    assert crs({**plain, "crs": None}) is None
    import pyproj

    utm = pyproj.CRS.from_epsg(32633).to_json_dict()
    assert crs({**plain, "crs": utm}) == "EPSG:32633"
    utm.pop("id")
    assert pyproj.CRS.from_user_input(crs({**plain, "crs": utm})).to_epsg() == 32633


def test_files_in_two_reference_systems_are_refused(tmp_path, vectors):
    for name, crs in (("a", 4326), ("b", 32633)):
        shapes = [shapely.Point(0, 0)] * 40
        ids = [f"{name}{i}" for i in range(40)]
        frame = geopandas.GeoDataFrame(
            {"id": ids, "embedding": list(vectors)}, geometry=shapes, crs=crs
        )
        frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match="EPSG:32633 and EPSG:4326"):
        _ = ParquetScenes(tmp_path).crs


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"vector": [[1.0]] * 3}, "no column embedding or embeddings, but vector"),
        ({"embedding": [[1.0, 2.0], [1.0], [1.0, 2.0]]}, "row 1 has a vector of 1 numbers"),
        ({"embedding": [[1.0, 2.0], None, [1.0, 2.0]]}, "row 1 has no vector"),
        ({"embedding": [1.0, 2.0, 3.0]}, "holds double values"),
        ({"embedding": [["a"], ["b"], ["c"]]}, "lists of string"),
        ({"embedding": pa.array([], pa.list_(pa.float32()))}, "has no rows"),
    ],
)
def test_what_is_no_table_of_vectors_is_refused(tmp_path, columns, words):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=words):
        ParquetScenes(tmp_path / "x.parquet")


def test_damaged_and_missing_files_are_named(tmp_path, vectors):
    make_embedding_product(tmp_path / "x.parquet", "Clay", vectors)
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read"):
        ParquetScenes(tmp_path / "x.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Parquet file here"):
        ParquetScenes(tmp_path / "empty")


def test_images_can_be_sent_to_another_process(tmp_path, vectors):
    make_embedding_product(tmp_path / "x.parquet", "Clay", vectors)
    scenes = ParquetScenes(tmp_path / "x.parquet")
    again = pickle.loads(pickle.dumps(scenes))
    assert again.geometry(np.arange(40)) == scenes.geometry(np.arange(40))
    np.testing.assert_array_equal(again.gather(np.arange(40)), vectors)


# -- labels and training -------------------------------------------------------------------------


def test_a_column_is_a_label_file(tmp_path, vectors):
    words = [None if i % 5 == 0 else ("farm", "lake")[i % 2] for i in range(40)]
    ids = make_embedding_product(tmp_path / "x.parquet", "Earth Index", vectors, label=words)
    table = read_labels(tmp_path / "x.parquet")
    assert table.kind == "single"
    assert table.classes == ("farm", "lake")
    assert table.images == tuple(ids)
    assert table.unlabelled == 8
    np.testing.assert_array_equal(table.values[7], [0, 1])


def test_a_column_of_lists_is_a_file_of_all_labels(tmp_path, vectors):
    lists = [["farm", "lake"] if i % 2 else ["farm"] for i in range(40)]
    make_embedding_product(tmp_path / "x.parquet", "Earth Index", vectors, labels=lists)
    table = read_labels(tmp_path / "x.parquet")
    assert table.kind == "multi"
    assert table.counts.tolist() == [40, 20]


def test_a_parquet_file_without_labels_is_no_label_file(tmp_path, vectors):
    make_embedding_product(tmp_path / "x.parquet", "Earth Index", vectors)
    with pytest.raises(LabelFileError, match="no column label or labels, but id, embedding"):
        read_labels(tmp_path / "x.parquet")


def test_labels_of_a_csv_are_matched_by_id_or_by_the_name_of_the_tile(tmp_path, vectors):
    make_embedding_product(tmp_path / "x.parquet", "Clay", vectors)
    lines = [f"claytile_32VLM_20210503_v02_{i:04d},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "labels.csv").write_text("image,label\n" + "\n".join(lines) + "\n")
    collection = open_collection(
        "geoparquet", tmp_path / "x.parquet", labels=tmp_path / "labels.csv"
    )
    assert collection.observed_values is not None
    np.testing.assert_array_equal(collection.observed_values.argmax(axis=1), np.arange(40) % 2)
    assert set(collection.splits) == {"train", "val"}


def test_a_product_is_trained_on_and_its_change_noticed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    truth = rng.random((80, 3)) < 0.4
    truth[np.arange(80), np.arange(80) % 3] = True
    vectors = (truth @ rng.normal(size=(3, 6)) + 0.2 * rng.normal(size=(80, 6))).astype("f4")
    words = [[name for name, there in zip("abc", row, strict=True) if there] for row in truth]
    path = tmp_path / "x.parquet"
    make_embedding_product(path, "Major TOM", vectors, labels=words)
    command = [
        "train", str(path), "--data", "geoparquet", "--truth", str(path), "--scheme", "random",
        "--epochs", "2", "--backbone", "linear", "--accelerator", "cpu", "--json",
        "--out", str(tmp_path / "run"), "--report", "false",
    ]  # fmt: skip
    assert main(command) == 0
    assert (tmp_path / "run" / "scores.json").exists()
    recorded = json.loads((tmp_path / "run" / "inputs.json").read_text())
    assert "root" in recorded
    capsys.readouterr()
    make_embedding_product(path, "Major TOM", vectors + 1, labels=words)
    assert main([*command, "--resume"]) == 2
    assert "has changed since" in capsys.readouterr().err


def test_inspect_says_what_such_a_file_is(tmp_path, vectors, capsys):
    make_embedding_product(tmp_path / "x.parquet", "Major TOM", vectors)
    assert main(["inspect", str(tmp_path / "x.parquet")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "geoparquet, 40 images" in told
    assert "columns as Major TOM publishes them, 6 numbers in embedding" in told
    assert "names from unique_id, places in EPSG:4326" in told
    assert main(["inspect", str(tmp_path / "x.parquet"), "--data", "geoparquet"]) == 0
    assert "Major TOM" in capsys.readouterr().out


def test_a_table_of_other_things_beside_images_is_no_data_set(tmp_path, capsys, vectors):
    picture(tmp_path / "photos" / "a.png")
    write(tmp_path / "photos" / "completed.parquet", Table({"image": ["a"], "class": ["lake"]}))
    assert main(["inspect", str(tmp_path / "photos"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "folder"
    make_embedding_product(tmp_path / "photos" / "x.parquet", "Clay", vectors)
    assert main(["inspect", str(tmp_path / "photos" / "x.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "geoparquet"


def test_what_is_written_with_its_places_opens_in_geopandas(tmp_path, vectors):
    """The way from a product into a table of predictions."""
    path = tmp_path / "x.parquet"
    ids = make_embedding_product(path, "Clay", vectors)
    images = open_collection("geoparquet", path).images
    rows = np.arange(len(images))
    table = Table({"image": images.names}, images.geometry(rows), images.crs)
    write(tmp_path / "out.parquet", table)
    back, before = geopandas.read_parquet(tmp_path / "out.parquet"), geopandas.read_parquet(path)
    assert back["image"].tolist() == ids
    assert back.crs == before.crs
    assert back.geometry.geom_equals(before.geometry).all()


def test_memory_holds_the_vectors_once(tmp_path):
    """Reading takes pieces: what Arrow allocates is far less than the vectors."""
    vectors = np.zeros((100_000, 64), dtype=np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64)
    pq.write_table(
        pa.table({"embedding": values}), tmp_path / "x.parquet",
        row_group_size=5000, use_dictionary=False, compression="none",
    )  # fmt: skip
    code = (
        "import sys, pyarrow; from pathlib import Path; from adagc.tables.reading import Source;"
        "print(Source.at(Path(sys.argv[1])).vectors().nbytes,"
        " pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    result, beside = map(int, done.stdout.split())
    assert result == vectors.nbytes
    assert beside < result / 2


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, vectors, monkeypatch):
    make_embedding_product(tmp_path / "x.parquet", "Clay", vectors)
    import importlib.util

    from adagc.tables import formats

    real = importlib.util.find_spec
    monkeypatch.setattr(
        formats, "find_spec", lambda name: None if name == "pyarrow" else real(name)
    )
    with pytest.raises(AdagcError, match=r"adagc\[geo\]"):
        ParquetScenes(tmp_path / "x.parquet")

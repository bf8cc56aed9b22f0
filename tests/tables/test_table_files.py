"""Tables come back from every format as they were written, and bad ones are refused in a line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adagc.errors import DataError, MissingExtraError, NoSpaceError, UsageError
from adagc.tables import SUFFIXES, Table, check_format, write
from full_disk import FullDisk

NAMES = ["a/ä.png", 'b "c", d.png', "e.png"]
PROBABILITIES = np.array([0.1, 0.25, np.nan], dtype=np.float32)


def plain(**more) -> Table:
    columns = {
        "image": NAMES,
        "probability": PROBABILITIES,
        "epochs": [3, None, 5],
        "kept": np.array([True, False, True]),
    }
    return Table({**columns, **more}, meta={"thresholds": "estimated", "note": "ä"})


def placed(crs: str | None = "EPSG:32633") -> Table:
    shapely = pytest.importorskip("shapely", reason="shapely is not installed")
    low = shapely.box(500_000, 5_000_000, 500_100, 5_000_200)
    high = shapely.box(500_100, 5_000_000, 500_200, 5_000_200)
    table = plain()
    return Table(table.columns, [low.wkb, high.wkb, None], crs, table.meta)


def test_csv_is_read_by_anybody(tmp_path):
    write(tmp_path / "out.csv", plain())
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == NAMES
    assert [row["probability"] for row in rows] == ["0.1", "0.25", ""]
    assert [row["epochs"] for row in rows] == ["3", "", "5"]
    assert [row["kept"] for row in rows] == ["1", "0", "1"]


def test_csv_needs_no_package_beside_numpy(tmp_path, monkeypatch):
    for package in ("pyarrow", "geopandas"):
        monkeypatch.setitem(sys.modules, package, None)
    write(tmp_path / "out.csv", plain())
    with pytest.raises(MissingExtraError, match=r"pyarrow.*adagc\[geo\]"):
        check_format(tmp_path / "out.parquet")
    with pytest.raises(MissingExtraError, match=r"geopandas.*adagc\[geo\]"):
        check_format(tmp_path / "out.gpkg")


def test_json_has_rows_and_what_is_true_of_all(tmp_path):
    write(tmp_path / "out.json", plain(vector=np.array([[1, 2], [3, 4], [5, 6]], np.float32)))
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["meta"] == {"thresholds": "estimated", "note": "ä"}
    assert [row["image"] for row in content["rows"]] == NAMES
    assert [row["probability"] for row in content["rows"]] == [0.1, 0.25, None]
    assert [row["epochs"] for row in content["rows"]] == [3, None, 5]
    assert content["rows"][1]["vector"] == [3, 4]
    assert content["rows"][0]["kept"] is True


def test_parquet_keeps_types_and_vectors(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    vectors = np.arange(12, dtype=np.float32).reshape(3, 4)
    write(tmp_path / "out.parquet", plain(embedding=vectors))
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found["image"].to_pylist() == NAMES
    assert found["probability"].type == "float"
    np.testing.assert_array_equal(found["probability"].to_numpy(), PROBABILITIES)
    assert found["epochs"].to_pylist() == [3, None, 5]
    assert found["kept"].to_pylist() == [True, False, True]
    np.testing.assert_array_equal(np.array(found["embedding"].to_pylist()), vectors)
    assert found.schema.metadata[b"thresholds"] == b"estimated"
    assert b"geo" not in found.schema.metadata


@pytest.mark.parametrize("suffix", [".parquet", ".gpkg"])
def test_geopandas_opens_it_with_the_crs(tmp_path, suffix):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    shapely = pytest.importorskip("shapely", reason="shapely is not installed")
    table = placed()
    write(tmp_path / f"out{suffix}", table)
    reader = geopandas.read_parquet if suffix == ".parquet" else geopandas.read_file
    frame = reader(tmp_path / f"out{suffix}")
    assert frame.crs.to_epsg() == 32633
    assert list(frame["image"]) == NAMES
    np.testing.assert_allclose(frame["probability"], PROBABILITIES)
    np.testing.assert_array_equal(frame["epochs"], [3, np.nan, 5])
    expected = [None if wkb is None else shapely.from_wkb(wkb) for wkb in table.geometry]
    assert list(frame.geometry) == expected


def test_the_metadata_is_geoparquet_1_1(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    write(tmp_path / "out.parquet", placed())
    geo = json.loads(parquet.read_schema(tmp_path / "out.parquet").metadata[b"geo"])
    column = geo["columns"][geo["primary_column"]]
    assert geo["version"] == "1.1.0"
    assert column["encoding"] == "WKB"
    assert column["geometry_types"] == ["Polygon"]
    assert column["crs"]["id"] == {"authority": "EPSG", "code": 32633}
    assert column["bbox"] == [500_000, 5_000_000, 500_200, 5_000_200]
    write(tmp_path / "unknown.parquet", placed(crs=None))
    geo = json.loads(parquet.read_schema(tmp_path / "unknown.parquet").metadata[b"geo"])
    assert geo["columns"]["geometry"]["crs"] is None  # leaving it out would mean WGS 84


def test_geojson_is_wgs_84(tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    write(tmp_path / "out.geojson", placed())
    content = json.loads((tmp_path / "out.geojson").read_text(encoding="utf-8"))
    assert content["meta"] == {"thresholds": "estimated", "note": "ä"}
    assert "crs" not in content
    frame = geopandas.read_file(tmp_path / "out.geojson")
    assert frame.crs.to_epsg() == 4326
    back = frame.to_crs("EPSG:32633").geometry[0]
    assert back.bounds == pytest.approx((500_000, 5_000_000, 500_100, 5_000_200), abs=0.02)
    with pytest.raises(DataError, match="coordinate reference system"):
        write(tmp_path / "none.geojson", placed(crs=None))
    assert not (tmp_path / "none.geojson").exists()


def test_csv_has_shapes_as_text(tmp_path):
    shapely = pytest.importorskip("shapely", reason="shapely is not installed")
    table = placed()
    write(tmp_path / "out.csv", table)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["geometry"] for row in csv.DictReader(file)]
    assert texts[2] == ""
    assert shapely.from_wkt(texts[0]) == shapely.from_wkb(table.geometry[0])


def test_formats_are_refused_before_any_work(tmp_path):
    with pytest.raises(UsageError, match=r"'.xlsx' cannot be written: use one of \.csv, \.json"):
        check_format(tmp_path / "out.xlsx")
    with pytest.raises(UsageError, match=r"did you mean '\.parquet'"):
        check_format(tmp_path / "out.parqet")
    with pytest.raises(UsageError, match="without a suffix"):
        check_format(tmp_path / "out")
    (tmp_path / "there.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check_format(tmp_path / "there.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        check_format(tmp_path / "file" / "out.csv")
    for suffix in (".geojson", ".gpkg"):
        with pytest.raises(UsageError, match="these have none: write"):
            check_format(tmp_path / f"out{suffix}", geometry=False)
        with pytest.raises(UsageError, match="these have none"):
            write(tmp_path / f"out{suffix}", plain())
    check_format(tmp_path / "new" / "OUT.CSV")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there.csv"]


def test_an_unknown_crs_is_named(tmp_path):
    pytest.importorskip("pyproj", reason="pyproj is not installed")
    with pytest.raises(DataError, match="'EPSG:banana' is no coordinate reference system"):
        write(tmp_path / "out.parquet", placed(crs="EPSG:banana"))


def test_bad_tables():
    with pytest.raises(DataError, match="equal lengths, not a 2, b 3"):
        Table({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(DataError, match="equal lengths"):
        Table({"a": [1, 2]}, geometry=[b""])
    with pytest.raises(DataError, match="one or two dimensions, not 3"):
        Table({"a": np.zeros((2, 2, 2))})
    with pytest.raises(DataError, match="at least one column"):
        Table({})
    with pytest.raises(DataError, match="'geometry'"):
        Table({"geometry": [1]}, geometry=[None])
    with pytest.raises(DataError, match="same name"):
        Table({"a": np.zeros((1, 2)), "a_0": [1]}).flat()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, suffix):
    table = placed()
    path = Path(tmp_path / f"out{suffix}")
    write(path, table)
    before = path.read_bytes()
    FullDisk(monkeypatch)
    with pytest.raises(NoSpaceError, match=f"out{suffix} cannot be written: it needs"):
        write(path, table)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows(tmp_path, suffix):
    pytest.importorskip("geopandas", reason="geopandas is not installed")
    write(tmp_path / f"out{suffix}", Table({"image": []}, geometry=[], crs="EPSG:4326"))
    assert (tmp_path / f"out{suffix}").stat().st_size > 0

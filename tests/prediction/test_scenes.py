"""Scenes by windows: what is planted comes back in its place, to the pixel."""

from __future__ import annotations

import numpy as np
import pytest

from adagc import predict
from adagc.errors import DataError, UsageError
from adagc.prediction import Mapped, Predicted
from planted import BANDS, CRS, LEFT, PIXEL, TOP, planted, write_model, write_scene

rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")


def read_map(path):
    with rasterio.open(path) as file:
        return file.read(), file.profile, file.descriptions, file


def means(values: np.ndarray, cell: int) -> np.ndarray:
    bands, height, width = values.shape
    return values.reshape(bands, height // cell, cell, width // cell, cell).mean(axis=(2, 4))


def test_polygons_lie_where_the_objects_are(tmp_path, model):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    # An odd size: the last windows of both sides are shifted in, to rows 13 to 20.
    values = planted(21, 30, (1, 8, 16, 8, 8), (0, 13, 22, 8, 8))
    scene = write_scene(tmp_path / "scene.tif", values)
    for suffix in (".parquet", ".gpkg"):
        out = tmp_path / f"windows{suffix}"
        predict(model, scene, out)
        found = geopandas.read_parquet(out) if suffix == ".parquet" else geopandas.read_file(out)
        assert found.crs.to_string() == CRS
        assert len(found) == 3 * 4
        (water,) = found.index[found["p_water"] == 1]
        bounds = (LEFT + 160, TOP - 160, LEFT + 240, TOP - 80)
        assert found.geometry[water].bounds == bounds
        assert (found["row"][water], found["column"][water]) == (8, 16)
        assert (found["x"][water], found["y"][water]) == (LEFT + 200, TOP - 120)
        assert found["labels"][water] == "water"
        (field,) = found.index[found["p_field"] == 1]
        assert found.geometry[field].bounds == (LEFT + 220, TOP - 210, LEFT + 300, TOP - 130)
        assert found.geometry.is_valid.all()
        assert found.geometry.exterior.is_ccw.all()


def test_geojson_is_in_longitude_and_latitude(tmp_path, model):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    scene = write_scene(tmp_path / "scene.tif", planted(16, 16, (1, 8, 0, 8, 8)))
    predict(model, scene, tmp_path / "windows.geojson")
    found = geopandas.read_file(tmp_path / "windows.geojson")
    assert found.crs.to_epsg() == 4326
    # Written with seven decimals, a centimetre.
    back = found.to_crs(CRS).geometry[found["p_water"] == 1].bounds.to_numpy()
    np.testing.assert_allclose(back, [(LEFT, TOP - 160, LEFT + 80, TOP - 80)], atol=0.05)


def test_cells_of_a_map_are_the_means_of_their_windows(tmp_path, model):
    values = np.random.default_rng(0).random((3, 24, 40)).astype(np.float32)
    scene = write_scene(tmp_path / "scene.tif", values)
    result = predict(model, scene, tmp_path / "map.tif")
    assert isinstance(result, Mapped)
    assert (result.windows, result.without) == (15, 0)
    found, profile, names, _ = read_map(tmp_path / "map.tif")
    np.testing.assert_allclose(found, means(values, 8), rtol=1e-6)
    assert names == ("field", "water", "road")
    assert profile["crs"].to_string() == CRS
    assert tuple(profile["transform"])[:6] == (80, 0, LEFT, 0, -80, TOP)
    assert np.isnan(profile["nodata"])
    assert profile["tiled"]


def test_a_map_of_pixels_is_on_the_grid_of_the_scene(tmp_path, model):
    values = planted(24, 32, (2, 8, 16, 8, 8))
    scene = write_scene(tmp_path / "scene.tif", values)
    predict(model, scene, tmp_path / "map.tif", cell=1)
    found, profile, _, _ = read_map(tmp_path / "map.tif")
    np.testing.assert_array_equal(found[2], values[2])
    with rasterio.open(scene) as file:
        assert (profile["transform"], profile["height"]) == (file.transform, file.height)
    with rasterio.open(tmp_path / "map.tif") as file:
        centre = file.index(LEFT + 16 * PIXEL + 1, TOP - 8 * PIXEL - 1)
        assert centre == (8, 16)


def test_overlapping_windows_are_blended(tmp_path, model):
    values = np.random.default_rng(1).random((3, 21, 26)).astype(np.float32)
    scene = write_scene(tmp_path / "scene.tif", values)
    predict(model, scene, tmp_path / "map.tif", stride=3, cell=2)
    rows = predict(model, scene, stride=3)
    assert isinstance(rows, Predicted)
    from reference.slow_blend import slow_blend, slow_starts

    tops, lefts = slow_starts(21, 8, 3), slow_starts(26, 8, 3)
    vectors = rows.probabilities.reshape(len(tops), len(lefts), 3)
    for (top, left), vector in zip(rows.places, rows.probabilities, strict=True):
        window = values[:, top : top + 8, left : left + 8]
        np.testing.assert_allclose(vector, window.mean(axis=(1, 2)), rtol=1e-5)
    slow = slow_blend(21, 26, (8, 8), (3, 3), vectors, 2)
    found, profile, _, _ = read_map(tmp_path / "map.tif")
    np.testing.assert_allclose(np.moveaxis(found, 0, 2), slow, rtol=1e-6)
    assert (profile["height"], profile["width"]) == (11, 13)
    half = predict(model, scene, overlap=0.625)
    np.testing.assert_array_equal(half.places, rows.places)


def test_what_has_no_data_is_left_out_and_the_rest_of_a_window_counts(tmp_path, model):
    values = planted(24, 24, (0, 0, 0, 24, 24)).astype(np.int16)
    values[:, :8, :12] = -9999  # a whole window, and half of another
    scene = write_scene(tmp_path / "scene.tif", values, nodata=-9999)
    rows = predict(model, scene)
    assert rows.without == 1
    assert (0, 0) not in {tuple(place) for place in rows.places.tolist()}
    at = rows.places.tolist().index([0, 8])
    assert rows.known[at] == 0.5
    assert rows.probabilities[at, 0] == 0.5  # the model takes missing values for zero
    predict(model, scene, tmp_path / "map.tif", cell=4)
    found, profile, _, _ = read_map(tmp_path / "map.tif")
    empty = np.isnan(found[0])
    expected = np.zeros((6, 6), dtype=bool)
    expected[:2, :3] = True
    np.testing.assert_array_equal(empty, expected)
    predict(model, scene, tmp_path / "decided.tif", cell=4, values="decision")
    decided, profile, _, _ = read_map(tmp_path / "decided.tif")
    assert (profile["dtype"], profile["nodata"]) == ("uint8", 255)
    np.testing.assert_array_equal(decided[0], np.where(empty, 255, found[0] >= 0.5))


@pytest.mark.parametrize("way", ["tag", "option", "nan", "mask", "infinite"])
def test_missing_values_however_they_are_marked(tmp_path, model, way):
    values = planted(16, 16, (0, 0, 0, 16, 16))
    mark = {"tag": -1, "option": -7, "nan": np.nan, "mask": 5, "infinite": np.inf}[way]
    values[:, :8, :8] = mark
    scene = write_scene(tmp_path / "scene.tif", values, nodata=-1 if way == "tag" else None)
    if way == "mask":
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(scene, "r+") as file:
            file.write_mask(values[0] != 5)
    rows = predict(model, scene, nodata=-7 if way == "option" else None)
    assert rows.without == 1
    assert rows.places.tolist() == [[0, 8], [8, 0], [8, 8]]
    assert (rows.probabilities[:, 0] == 1).all()


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64"]
)
def test_any_type_of_number(tmp_path, model, dtype):
    values = planted(16, 16, (1, 8, 8, 8, 8)).astype(dtype)
    rows = predict(model, write_scene(tmp_path / "scene.tif", values))
    assert rows.probabilities[:, 1].tolist() == [0, 0, 0, 1]


def test_complex_numbers_are_refused(tmp_path, model):
    scene = write_scene(tmp_path / "scene.tif", planted(16, 16).astype("complex64"))
    with pytest.raises(DataError, match="complex64 values; save it as integers or real numbers"):
        predict(model, scene)


def test_a_scene_smaller_than_a_window_is_padded(tmp_path, model):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    scene = write_scene(tmp_path / "scene.tif", planted(6, 20, (0, 0, 0, 6, 8)))
    predict(model, scene, tmp_path / "rows.parquet")
    rows = geopandas.read_parquet(tmp_path / "rows.parquet")
    assert rows["p_field"].tolist() == pytest.approx([0.75, 0, 0])  # 6 of 8 rows
    assert rows["data"].tolist() == pytest.approx([0.75] * 3)
    # The polygon ends with the scene.
    assert rows.geometry[0].bounds == (LEFT, TOP - 60, LEFT + 80, TOP)


def test_windows_of_another_size_are_resized_as_in_training(tmp_path, model):
    from adagc.images.decode import resize

    values = np.random.default_rng(2).integers(0, 2000, (3, 40, 40)).astype(np.uint16)
    scene = write_scene(tmp_path / "scene.tif", values)
    rows = predict(model, scene, window=20)
    for (top, left), vector in zip(rows.places, rows.probabilities, strict=True):
        patch = resize(values[:, top : top + 20, left : left + 20], 8).astype(np.float32)
        np.testing.assert_allclose(vector, patch.mean(axis=(1, 2)), rtol=1e-5)
    assert rows.places.tolist() == [[0, 0], [0, 20], [20, 0], [20, 20]]


def test_blocks_do_not_change_the_result(tmp_path, model, monkeypatch):
    from adagc.prediction import inputs
    from adagc.windows.grid import share

    values = np.random.default_rng(3).random((3, 67, 81)).astype(np.float32)
    values[:, 20:50, 10:70] = np.nan
    scene = write_scene(tmp_path / "scene.tif", values)
    predict(model, scene, tmp_path / "one.tif", stride=5, cell=3)
    whole = read_map(tmp_path / "one.tif")[0]
    monkeypatch.setattr(inputs, "share", lambda *a, **k: share(*a, **{**k, "most": 3 * 20 * 20}))
    predict(model, scene, tmp_path / "many.tif", stride=5, cell=3)
    np.testing.assert_array_equal(read_map(tmp_path / "many.tif")[0], whole)
    assert np.isnan(whole).any()
    assert not list(tmp_path.glob("*.progress*"))


def test_large_maps_have_overviews(tmp_path):
    model = write_model(tmp_path / "model", side=2)
    scene = write_scene(tmp_path / "scene.tif", planted(600, 600, (0, 0, 0, 300, 600)))
    predict(model, scene, tmp_path / "map.tif", cell=1)
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.overviews(1) == [2, 4]
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.tags(2)["threshold"] == "0.25"


def test_scenes_without_coordinates(tmp_path, model):
    scene = write_scene(tmp_path / "scene.tif", planted(16, 16, (0, 0, 8, 8, 8)), crs=None)
    (one,) = predict(model, scene).probabilities
    assert one[0] == pytest.approx(0.25)  # one image, resized
    rows = predict(model, scene, windows="always")
    assert rows.probabilities[:, 0].tolist() == [0, 1, 0, 0]
    with pytest.raises(DataError, match="coordinate reference system"):
        predict(model, scene, tmp_path / "rows.geojson", windows="always")
    predict(model, scene, tmp_path / "map.tif")  # a map means windows
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.crs is None
        assert file.read(1).tolist() == [[0, 1], [0, 0]]


def test_files_in_lines_and_in_tiles_give_the_same(tmp_path, model):
    values = np.random.default_rng(4).random((3, 64, 64)).astype(np.float32)
    lines = write_scene(tmp_path / "lines.tif", values)
    tiles = write_scene(
        tmp_path / "tiles.tif", values, tiled=True, blockxsize=16, blockysize=16, compress="lzw"
    )
    first, second = predict(model, lines), predict(model, tiles)
    np.testing.assert_array_equal(first.probabilities, second.probabilities)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 4, "overlap": 0.5}, "say the same"),
        ({"overlap": 1.0}, "--overlap must be at least 0 and below 1"),
        ({"stride": 0}, "--stride must be at least 1"),
        ({"cell": 2}, "are for maps"),
        ({"values": "decision"}, "are for maps"),
        ({"workers": 0}, "--workers must be at least 1"),
    ],
)
def test_options_that_make_no_sense(tmp_path, model, options, message):
    scene = write_scene(tmp_path / "scene.tif", planted(16, 16))
    with pytest.raises(UsageError, match=message):
        predict(model, scene, tmp_path / "rows.csv", **options)
    assert not (tmp_path / "rows.csv").exists()


def test_a_model_of_other_bands_is_refused(tmp_path):
    model = write_model(tmp_path / "model", bands=("B02", "B8A", "B11"))
    scene = write_scene(tmp_path / "scene.tif", planted(16, 16), bands=BANDS)
    with pytest.raises(DataError, match="has no band B8A and no band B11"):
        predict(model, scene, tmp_path / "map.tif")
    assert not (tmp_path / "map.tif").exists()


def test_bands_are_found_by_name(tmp_path, model):
    values = planted(16, 16, (0, 0, 0, 16, 16), (2, 8, 8, 8, 8))
    extra = np.concatenate([np.full((1, 16, 16), 9, np.float32), values[[2, 0, 1]]])
    scene = write_scene(tmp_path / "scene.tif", extra, bands=("SCL", "b04", "B02", "B03"))
    straight = predict(model, write_scene(tmp_path / "straight.tif", values))
    np.testing.assert_array_equal(predict(model, scene).probabilities, straight.probabilities)
    bare = write_scene(tmp_path / "bare.tif", extra, bands=())
    with pytest.raises(DataError, match="4 bands, and the model takes 3"):
        predict(model, bare)
    named = predict(model, bare, bands=["x", "B04", "B02", "B03"])
    np.testing.assert_array_equal(named.probabilities, straight.probabilities)

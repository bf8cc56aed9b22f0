"""Places from tags are those that GDAL reads, also of files that say it in another way."""

from __future__ import annotations

import time

import numpy as np
import pytest

from adagc.images import geotiff
from adagc.images.footprint import corners_of
from adagc.images.geotiff import place_of_file

rasterio = pytest.importorskip("rasterio")


def write(path, *, crs="EPSG:32633", transform=None, **more):
    from rasterio.transform import from_origin

    place = {"crs": crs, "transform": transform or from_origin(399960.0, 4900020.0, 10, 20)}
    told = {"driver": "GTiff", "width": 7, "height": 5, "count": 2, "dtype": "uint16"}
    with rasterio.open(path, "w", **told, **place, **more) as file:
        file.write(np.zeros((2, 5, 7), np.uint16))
    return path


def same(path) -> None:
    found, expected = place_of_file(path), corners_of(path)
    assert found is not None
    assert expected is not None
    assert found[1] == expected[1]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)


@pytest.mark.parametrize(
    "more",
    [
        {}, {"compress": "deflate"}, {"tiled": True, "blockxsize": 16, "blockysize": 16},
        {"ENDIANNESS": "BIG"}, {"BIGTIFF": "YES"}, {"GEOTIFF_VERSION": "1.1"},
        {"crs": "EPSG:4326"}, {"crs": "EPSG:3035"}, {"crs": "EPSG:2154"},
        {"crs": "+proj=laea +lat_0=10 +lon_0=20 +datum=WGS84"},
    ],
)  # fmt: skip
def test_the_same_place_as_gdal_reads(tmp_path, more):
    same(write(tmp_path / "a.tif", **more))


def test_pixels_that_are_points(tmp_path):
    with rasterio.open(write(tmp_path / "a.tif"), "r+") as file:
        file.update_tags(AREA_OR_POINT="Point")
    same(tmp_path / "a.tif")


def test_turned_images_are_read_by_gdal(tmp_path):
    turned = rasterio.Affine(10, 3, 400000, 3, -10, 4900000)
    same(write(tmp_path / "a.tif", transform=turned))


def test_tags_are_enough_for_usual_files(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tif")
    expected = corners_of(path)
    monkeypatch.setattr(geotiff, "corners_of", lambda file: pytest.fail("GDAL was asked"))
    assert place_of_file(path) == expected
    began = time.process_time()
    for _ in range(300):
        place_of_file(path)
    assert (time.process_time() - began) / 300 < 0.002


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_files_without_a_place_are_not_opened_twice(tmp_path, monkeypatch):
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", width=3, height=3, count=1, dtype="uint8"):
        pass
    monkeypatch.setattr(geotiff, "corners_of", lambda file: pytest.fail("GDAL was asked"))
    assert place_of_file(path) is None


@pytest.mark.parametrize("cut", [0, 3, 8, 9, 40, 150, 400])
def test_damaged_files_have_no_place_or_that_of_gdal(tmp_path, cut):
    whole = write(tmp_path / "a.tif").read_bytes()
    path = tmp_path / "b.tif"
    path.write_bytes(whole[:cut])
    assert place_of_file(path) in (None, corners_of(path), corners_of(tmp_path / "a.tif"))


def test_random_changes_never_raise(tmp_path):
    whole = np.frombuffer(write(tmp_path / "a.tif").read_bytes(), np.uint8)
    luck = np.random.default_rng(0)
    path = tmp_path / "b.tif"
    for _ in range(200):
        changed = whole.copy()
        changed[luck.integers(0, min(len(whole), 400), 6)] = luck.integers(0, 256, 6)
        path.write_bytes(changed.tobytes())
        geotiff._tags(path)
        place_of_file(path)

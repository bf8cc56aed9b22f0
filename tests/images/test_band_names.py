"""What GeoTIFFs call their bands is what models know them by."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from adagc.datasets.folder import folder_collection
from adagc.datasets.inspect.look import look_at_files
from adagc.errors import DataError
from adagc.images.band_names import agreed
from adagc.models.spec import ModelSpec
from adagc.prediction.bands import choose
from adagc.training.scoring import check_input
from adagc.web.images import FolderScenes

rasterio = pytest.importorskip("rasterio")


def write(path, *bands):
    told = {"driver": "GTiff", "width": 8, "height": 8, "count": len(bands), "dtype": "uint16"}
    path.parent.mkdir(exist_ok=True)
    with rasterio.open(path, "w", **told) as file:
        file.write(np.random.default_rng(0).integers(1, 99, (len(bands), 8, 8)).astype(np.uint16))
        for number, name in enumerate(bands, 1):
            if name:
                file.set_band_description(number, name)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    for name in "abc":
        write(tmp_path / "photos" / f"{name}.tif", "B04", "B03", "B08", "B11")
    return tmp_path / "photos"


def test_all_that_open_a_folder_take_the_names_of_its_files(photos):
    names = ("B04", "B03", "B08", "B11")
    for _ in range(2):  # decoded now, and from the cache
        assert folder_collection(photos).images.bands == names
    assert look_at_files(photos, ("a.tif", "b.tif")).bands == names
    assert FolderScenes(photos).bands == names
    told = ("one", "two", "three", "four")
    assert folder_collection(photos, bands=told).images.bands == told
    assert FolderScenes(photos, bands=told).bands == told


def test_files_with_the_same_bands_in_another_order_are_not_mixed_up(photos):
    write(photos / "d.tif", "B03", "B04", "B08", "B11")
    with pytest.raises(DataError, match=r"a.tif has B04, B03, B08, B11, d.tif has B03, B04, B08"):
        folder_collection(photos)
    assert folder_collection(photos, bands=list("wxyz")).images.bands == tuple("wxyz")


@pytest.mark.parametrize(
    "other",
    [
        ("B04", "B03", "B08", "B12"),  # of another selection
        ("B04", "B03", "B08", None),
        ("B04", "B03", "B08", "B08"),
    ],
)
def test_names_that_files_do_not_share_are_not_used(photos, other):
    write(photos / "d.tif", *other)
    assert folder_collection(photos).images.bands == ("band_1", "band_2", "band_3", "band_4")


@pytest.mark.parametrize(
    ("named", "count", "expected"),
    [
        ({}, 3, None),
        ({("Red", "GREEN", "blue"): "a"}, 3, ("red", "green", "blue")),  # the usual spelling
        ({("Band 1", "Band 2"): "a"}, 2, None),  # they say nothing
        ({("1", "2"): "a"}, 2, None),
        ({("B4", "B3", "B2", "mask"): "a"}, 3, ("B4", "B3", "B2")),  # the last is left out
        ({("B4", "B3", "B2"): "a"}, 4, None),
    ],
)
def test_which_names_are_used(named, count, expected):
    assert agreed(named, count) == expected


def test_images_without_names(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "b.png")
    assert folder_collection(tmp_path / "photos").images.bands == ("red", "green", "blue")


def test_a_model_of_colours_refuses_a_file_in_which_one_of_them_is_another_band():
    colours = ("red", "green", "blue")
    with pytest.raises(DataError, match="has no band blue"):
        choose(colours, ("red", "green", "nir"))
    assert choose(colours, ("B04", "B03", "B02")).numbers == (0, 1, 2)  # nothing contradicts it


def test_a_run_takes_bands_by_number_only_where_names_are_unknown(photos):
    images = folder_collection(photos).images
    for bands, fits in (
        (("B04", "B03", "B08", "B11"), True),
        (("band_1", "band_2", "band_3", "band_4"), True),
        (("B03", "B04", "B08", "B11"), False),
    ):
        spec = ModelSpec("test_resnet", images.shape, ("a", "b"), bands)
        if fits:
            check_input(images, spec)
        else:
            with pytest.raises(Exception, match="use images as in training"):
                check_input(images, spec)

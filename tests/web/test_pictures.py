"""Pictures for annotators: which composites there are, and that every image can be shown."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adagc.errors import DataError
from adagc.images.array import ArrayScenes
from adagc.images.cached import CachedScenes
from adagc.images.composites import composites_of
from adagc.images.footprint import footprints, outline_place
from adagc.images.spectral import roles
from adagc.images.store.cache import open_cache
from adagc.web.pictures import composites, picture, place

S2 = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")


def opened(shown) -> np.ndarray:
    image = Image.open(io.BytesIO(shown.data))
    assert Image.MIME[image.format] == shown.media_type
    return np.asarray(image)


@pytest.mark.parametrize(
    ("bands", "expected"),
    [
        (("red", "green", "blue"), {"true colour": (0, 1, 2)}),
        (("B", "G", "R"), {"true colour": (2, 1, 0)}),
        (("grey",), {"grey": (0,)}),
        (("VV", "VH"), {"radar": (0, 1, -1)}),
        (("vh", "vv"), {"radar": (1, 0, -1)}),
        (("HH", "HV"), {"radar, horizontal": (0, 1, -1)}),
        (("VV",), {"VV": (0,)}),
        (
            ("B02", "b03", "B04", "B8"),
            {"true colour": (2, 1, 0), "colour infrared": (3, 2, 1)},
        ),
        (
            ("SR_B2", "SR_B3", "SR_B4", "SR_B5", "SR_B6", "SR_B7"),
            {
                "true colour": (2, 1, 0),
                "colour infrared": (3, 2, 1),
                "short-wave infrared": (5, 3, 2),
                "SR_B6": (4,),
            },
        ),
        (
            ("Near Infrared", "Red", "Green", "height"),
            {"colour infrared": (0, 1, 2), "height": (3,)},
        ),
        (
            ("band_1", "band_2", "band_3", "band_4"),
            {
                "first three bands": (0, 1, 2),
                **{"band_1": (0,), "band_2": (1,), "band_3": (2,), "band_4": (3,)},
            },
        ),
        (("a", "b2"), {"a": (0,), "b2": (1,)}),
        (("swir22", "nir08", "red"), {"short-wave infrared": (0, 1, 2)}),
    ],
)
def test_composites_that_bands_allow(bands, expected):
    found = composites_of(bands)
    assert {one.name: one.channels for one in found} == expected
    assert list(expected) == [one.name for one in found]


def test_composites_of_sentinel_2_with_radar():
    found = {one.name: one for one in composites_of((*S2, "VV", "VH"))}
    assert list(found) == [
        *("true colour", "colour infrared", "short-wave infrared", "radar"),
        *("B01", "B05", "B06", "B07", "B8A", "B09", "B11"),
    ]
    assert found["true colour"].title == "true colour (B04, B03, B02)"
    assert found["colour infrared"].bands == ("B08", "B04", "B03")
    assert found["short-wave infrared"].bands == ("B12", "B08", "B04")
    assert found["radar"].bands == ("VV", "VH", "VV / VH")
    assert found["B05"].title == "B05"


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True))
@settings(max_examples=30)
def test_any_names_have_a_picture_of_every_band(bands):
    found = composites_of(bands)
    assert {c for one in found for c in one.channels} - {-1} >= (
        set(range(len(bands))) - set(roles(bands).values())
    )
    assert found
    for one in found:
        assert len(one.channels) == len(one.bands)
        assert all(-1 <= c < len(bands) for c in one.channels)


def test_names_as_users_write_them():
    assert roles(("B04_10m", "Sentinel B3", "b2")) == {"red": 0, "green": 1, "blue": 2}
    # Band 5 of Landsat is near infrared, that of Sentinel-2 a red edge.
    assert roles(("B4", "B5", "B6", "B7"))["nir"] == 1
    assert "nir" not in roles(("B4", "B5", "B6", "B7", "B8A"))


def test_colours_are_those_of_the_bands():
    pixels = np.zeros((1, 4, 8, 8), dtype=np.uint8)
    pixels[0, 2] = 250  # red is the third band
    images = ArrayScenes(pixels, bands=("blue", "green", "red", "nir"))
    true, infrared = composites(images)[:2]
    assert (opened(picture(images, 0, true)) == (250, 0, 0)).all()
    assert (opened(picture(images, 0, infrared)) == (0, 250, 0)).all()


def test_missing_values_are_transparent_and_others_are_not():
    values = np.random.default_rng(0).normal(size=(3, 3, 40, 50)).astype(np.float32)
    values[1, 0, :7] = np.nan
    images = ArrayScenes(values)
    one = composites(images)[0]
    for how in ("image", "data set"):
        shown = opened(picture(images, 1, one, stretch=how))
        assert shown.shape == (40, 50, 4)
        assert (shown[:7, :, 3] == 0).all()
        assert (shown[7:, :, 3] == 255).all()
        assert opened(picture(images, 0, one, stretch=how)).shape == (40, 50, 3)


def test_stretch_by_image_and_by_data_set():
    ramp = np.linspace(0, 1, 64 * 64).reshape(64, 64)
    values = np.stack([1000 + 200 * ramp, 1000 + 4000 * ramp])[:, None].repeat(3, axis=1)
    images = ArrayScenes(values.astype(np.uint16))
    one = composites(images)[0]
    dark, bright = (opened(picture(images, row, one)) for row in (0, 1))
    assert dark.max() < 30
    assert bright.max() == 255
    assert opened(picture(images, 0, one, stretch="image")).max() == 255
    alone = opened(picture(images, 1, one, stretch="image"))
    assert alone.min() == 0
    assert alone.max() == 255
    # the 2nd and the 98th percentile are the ends
    assert (alone[..., 0] == 0).mean() == pytest.approx(0.02, abs=0.005)
    assert (alone[..., 0] == 255).mean() == pytest.approx(0.02, abs=0.005)
    assert (np.diff(alone[..., 0].ravel().astype(int)) >= 0).all()


def test_eight_bits_are_shown_as_they_are_unless_asked_otherwise():
    pixels = np.random.default_rng(0).integers(90, 120, (2, 3, 30, 30)).astype(np.uint8)
    images = ArrayScenes(pixels)
    one = composites(images)[0]
    assert np.array_equal(np.moveaxis(opened(picture(images, 1, one)), -1, 0), pixels[1])
    assert opened(picture(images, 1, one, stretch="image")).max() == 255


def test_ratio_of_radar_is_a_difference_in_decibel():
    linear = np.random.default_rng(0).uniform(0.01, 1, (1, 2, 20, 20)).astype(np.float32)
    decibel = 10 * np.log10(linear)
    plain, logs = (ArrayScenes(v, bands=("VV", "VH")) for v in (linear, decibel))
    radar = composites(plain)[0]
    first, second = (opened(picture(one, 0, radar, stretch="image")) for one in (plain, logs))
    ratio = linear[0, 0] / linear[0, 1]
    for shown in (first, second):  # both rank pixels by the same ratio
        order = np.argsort(ratio.ravel())
        assert (np.diff(shown[..., 2].ravel()[order].astype(int)) >= 0).all()
    linear[0, 1, 0, 0] = 0  # no echo: no ratio
    assert opened(picture(ArrayScenes(linear, bands=("VV", "VH")), 0, radar))[0, 0, 3] == 0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]),
    st.sampled_from(["constant", "random", "extreme", "nan", "infinite"]),
    st.integers(1, 5),
    st.sampled_from(["image", "data set"]),
)
def test_any_values_can_be_shown(dtype, kind, bands, how):
    kinds = np.dtype(dtype)
    rng = np.random.default_rng(bands)
    values = rng.integers(0, 100, (2, bands, 9, 11)).astype(kinds)
    ends = (
        (np.iinfo(kinds).min, np.iinfo(kinds).max)
        if kinds.kind in "iu"
        else (-np.finfo(kinds).max, np.finfo(kinds).max)
    )
    if kind == "constant":
        values[:] = 7
    elif kind == "extreme":
        values[:, :, :5], values[:, :, 5:] = ends
    elif kinds.kind == "f" and kind != "random":
        values[0] = np.nan if kind == "nan" else np.inf
        values[1, :, 0] = np.nan if kind == "nan" else -np.inf
    images = ArrayScenes(values)
    for one in composites(images):
        with np.errstate(all="raise", under="ignore"):
            shown = opened(picture(images, 0, one, stretch=how))
        assert shown.shape[:2] == (9, 11)
        if kind == "nan" and kinds.kind == "f":
            assert (shown[..., -1] == 0).all()
        if kind == "extreme" and dtype != "u1":
            grey = shown if shown.ndim == 2 else shown[..., 0]
            assert grey[0, 0] == 0
            assert grey[8, 0] == 255


def test_large_images_are_made_smaller_and_small_ones_kept_sharp():
    pixels = np.random.default_rng(0).integers(0, 255, (1, 3, 300, 600)).astype(np.uint8)
    images = ArrayScenes(pixels)
    one = composites(images)[0]
    small = picture(images, 0, one, longest=100)
    assert opened(small).shape == (50, 100, 3)
    assert picture(images, 0, one).media_type == "image/jpeg"
    assert opened(picture(images, 0, one)).shape == (300, 600, 3)
    holes = pixels.astype(np.float32)
    holes[0, :, :100] = np.nan
    shown = picture(ArrayScenes(holes), 0, one)
    assert shown.media_type == "image/webp"
    assert (opened(shown)[:100, :, 3] == 0).all()
    assert (opened(shown)[100:, :, 3] == 255).all()


def test_embeddings_have_no_picture():
    with pytest.raises(DataError, match="nothing to see"):
        composites(ArrayScenes(np.zeros((3, 8), np.float32)))


def test_the_place_of_a_geotiff(tmp_path: Path):
    rasterio = pytest.importorskip("rasterio")
    from rasterio.transform import from_origin

    profile = {"driver": "GTiff", "width": 120, "height": 60, "count": 1, "dtype": "uint8"}
    for name, system in (("a", "EPSG:32633"), ("b", None)):
        placed = {} if system is None else {"crs": system}
        if system is not None:
            placed["transform"] = from_origin(500_000, 5_300_000, 10, 10)
        with rasterio.open(tmp_path / f"{name}.tif", "w", **profile, **placed) as file:
            file.write(np.zeros((1, 60, 120), np.uint8))
    cache = open_cache(tmp_path, ["a.tif", "b.tif"], size=32, cache=tmp_path / "cache")
    images = CachedScenes(cache, ["a", "b"], root=tmp_path)
    found = place(images, 0)
    # zone 33 has its centre at 15 degrees east, where the scale of its map is 0.9996
    assert found.longitude == pytest.approx(15 + 0.00808, abs=1e-4)
    assert found.latitude == pytest.approx(47.85, abs=0.02)
    assert found.width == pytest.approx(1200, rel=0.005)
    assert found.height == pytest.approx(600, rel=0.005)
    assert place(images, 1) is None
    # the same from an outline, as other data sets have it
    shapes, system = footprints([tmp_path / "a.tif"])
    again = outline_place(shapes[0], system)
    assert again.longitude == pytest.approx(found.longitude, abs=1e-7)
    assert again.width == pytest.approx(found.width, rel=1e-6)


def test_images_without_a_place():
    assert place(ArrayScenes(np.zeros((1, 3, 4, 4), np.uint8)), 0) is None
    assert outline_place(b"\1\1\0\0\0", "EPSG:4326") is None


@pytest.mark.parametrize(("side", "read"), [(64, 64), (512, 64), (1024, 16), (4096, 8)])
def test_of_large_images_few_are_read_before_the_first_is_shown(side, read):
    class Counted(ArrayScenes):
        asked = 0

        def gather(self, rows):
            self.asked += len(rows)
            return super().gather(rows * 0)

    one = np.broadcast_to(np.arange(side, dtype=np.uint16), (1, 1, side, side))
    images = Counted(np.broadcast_to(one, (100, 1, side, side)), bands=("grey",))
    picture(images, 0, composites(images)[0])
    assert images.asked == read + 1

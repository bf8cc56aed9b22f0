"""Missing values: NaN, a number that the user names, and the one that a TIFF file names."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from adagc.images.array import ArrayScenes, open_arrays, pooled
from adagc.images.cached import CachedScenes
from adagc.images.decode import peek, read_image, resize
from adagc.images.missing import mark
from adagc.images.normalisation import measure
from adagc.images.pictures import limits, thumbnails
from adagc.images.scan import find_images
from adagc.images.store.cache import open_cache

RNG = np.random.default_rng(0)


def write_tiff(path: Path, image: np.ndarray, nodata: str | None = None, **how: object) -> None:
    tags = () if nodata is None else ((42113, "s", 0, nodata, True),)
    tifffile.imwrite(path, image, extratags=tags, **how)


@pytest.mark.parametrize(
    ("dtype", "nodata", "result"),
    [
        (np.uint8, 0, np.float16),
        (np.int16, -9999, np.float32),
        (np.uint16, 65535, np.float32),
        (np.int32, -(2**31), np.float64),
        (np.float32, -9999, np.float32),
        (np.float32, -3.40282346638529e38, np.float32),  # as GDAL writes the lowest number
        (np.float64, -1.7976931348623157e308, np.float64),
        (np.float32, -np.inf, np.float32),
    ],
)
def test_marked_values_are_nan_and_the_others_exact(dtype, nodata, result) -> None:
    values = np.arange(1, 25).reshape(2, 3, 4).astype(dtype)
    values[0, 1, 2] = values[1, 0, 0] = nodata
    before = values.copy()
    marked = mark(values, [nodata])
    assert marked.dtype == result
    gaps = np.zeros(values.shape, bool)
    gaps[0, 1, 2] = gaps[1, 0, 0] = True
    np.testing.assert_array_equal(np.isnan(marked), gaps)
    np.testing.assert_array_equal(marked[~gaps], values[~gaps].astype(np.float64))
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [(np.uint8, -9999), (np.uint8, 0.5), (np.int16, 1e6), (np.float32, 1e300), (np.uint8, np.nan)],
)
def test_a_number_that_cannot_occur_changes_nothing(dtype, nodata) -> None:
    values = np.ones((2, 3), dtype)
    assert mark(values, [nodata]) is values


def test_sixteen_bits_and_more_survive_exactly() -> None:
    values = np.arange(65536, dtype=np.uint16)
    assert (mark(values, [7])[8:] == values[8:]).all()
    wide = np.array([2**31 - 1, 2**31 - 2, -5], np.int32)
    assert mark(wide, [-5])[:2].tolist() == [2**31 - 1, 2**31 - 2]


def test_a_tiff_names_its_own_number(tmp_path: Path) -> None:
    image = RNG.integers(1, 900, (5, 20, 20), dtype=np.int16)
    image[2, :4] = -9999
    write_tiff(tmp_path / "a.tif", image, "-9999 ", photometric="minisblack")
    read = read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(read, np.where(image == -9999, np.nan, image))
    header = peek(tmp_path / "a.tif")
    assert (header.dtype, header.depth) == (read.dtype, np.int16)
    both = read_image(tmp_path / "a.tif", nodata=int(image[0, 0, 0]))
    assert np.isnan(both[0, 0, 0])
    assert np.isnan(both[2, :4]).all()
    write_tiff(tmp_path / "b.tif", image, "none", photometric="minisblack")
    np.testing.assert_array_equal(read_image(tmp_path / "b.tif"), image)


def test_a_palette_has_numbers_too(tmp_path: Path) -> None:
    index = RNG.integers(0, 256, (20, 30), dtype=np.uint8)
    colours = RNG.integers(0, 256, (3, 256)).astype(np.uint16) * 257
    write_tiff(tmp_path / "a.tif", index, "9", photometric="palette", colormap=colours)
    read = read_image(tmp_path / "a.tif")
    wanted = np.where(index == 9, np.nan, colours[:, index] >> 8)
    np.testing.assert_array_equal(read, wanted)
    assert peek(tmp_path / "a.tif")[:2] == (read.shape, read.dtype)


@pytest.mark.parametrize("size", [8, 13, 64])
def test_resizing_never_mixes_missing_values_in(size: int) -> None:
    """Valid values are all 5: any mixture with a gap would be another number."""
    image = np.full((2, 32, 32), 5, np.float32)
    image[0, 8:16, 8:20] = np.nan
    small = resize(image, size)
    assert (small[1] == 5).all()
    np.testing.assert_allclose(small[0][~np.isnan(small[0])], 5, rtol=1e-6)
    share = np.isnan(small[0]).mean()
    assert share == pytest.approx(96 / 1024, abs=0.03)


def test_scattered_gaps_do_not_swallow_an_image() -> None:
    image = RNG.normal(100, 1, (1, 96, 96)).astype(np.float32)
    image[RNG.random(image.shape) < 0.1] = np.nan
    small = resize(image, 8)
    assert not np.isnan(small).any()
    np.testing.assert_allclose(small, 100, atol=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images of 16 bits, some with gaps that are written as 0; no file says so."""
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    for i in range(6):
        image = RNG.integers(1000, 3000, (4, 16, 16), dtype=np.uint16)
        image[1, : 2 * i] = 0
        (tmp_path / "images").mkdir(exist_ok=True)
        np.save(tmp_path / "images" / f"{i}.npy", image)
    return tmp_path / "images"


def open_store(root: Path, nodata: float | None = None) -> CachedScenes:
    store = open_cache(root, find_images(root), nodata=nodata)
    return CachedScenes(store, store.files)


def test_a_store_keeps_gaps_and_leaves_them_out_of_statistics(folder: Path) -> None:
    plain, marked = open_store(folder), open_store(folder, 0)
    assert (plain.dtype, plain.depth) == (np.uint16, np.uint16)
    assert (marked.dtype, marked.depth) == (np.float32, np.uint16)
    rows = np.arange(6)
    raw, values = plain.gather(rows), marked.gather(rows)
    np.testing.assert_array_equal(values, np.where(raw == 0, np.nan, raw))
    found = measure(marked, rows)
    gaps = (raw == 0).sum(axis=(0, 2, 3))
    assert found.count.tolist() == (6 * 256 - gaps).tolist()
    np.testing.assert_allclose(found.missing, gaps / (6 * 256))
    for band in range(4):
        valid = raw[:, band][raw[:, band] > 0].astype(np.float64)
        assert found.mean[band] == pytest.approx(valid.mean(), rel=1e-12)
        assert found.std[band] == pytest.approx(valid.std(), rel=1e-10)
    missing, infinite = marked.flaws(rows[::-1])
    assert missing.tolist() == [True] * 5 + [False]
    assert not infinite.any()
    again = pickle.loads(pickle.dumps(marked))
    np.testing.assert_array_equal(again.gather(rows), values)
    assert again.depth == np.uint16
    assert open_store(folder, 0).depth == np.uint16  # from the finished cache


def test_files_that_name_a_number_beside_files_that_do_not(tmp_path: Path) -> None:
    image = np.full((3, 8, 8), 200, np.uint8)
    image[0, 0] = 0
    write_tiff(tmp_path / "a.tif", image, "0", photometric="minisblack")
    write_tiff(tmp_path / "b.tif", image, photometric="minisblack")
    scenes = open_store(tmp_path)
    first, second = scenes.gather(np.arange(2))
    assert np.isnan(first[0, 0]).all()
    assert (second[0, 0] == 0).all()
    assert scenes.depth == np.uint8


@pytest.mark.parametrize("shape", [(10, 7), (10, 3, 9, 9), (10, 40, 2, 2)])
def test_arrays(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = RNG.integers(1, 90, shape, dtype=np.int16)
    values[4, 1] = -1
    np.save(tmp_path / "images.npy", values)
    scenes = open_arrays(tmp_path, nodata=-1)
    rows = np.arange(10)
    np.testing.assert_array_equal(scenes.gather(rows), np.where(values == -1, np.nan, values))
    assert scenes.flaws(rows)[0].tolist() == (rows == 4).tolist()
    known = values[[i for i in range(10) if i != 4], 1]
    assert measure(scenes, rows).mean[1] == pytest.approx(known.mean(dtype=np.float64))
    clean = open_arrays(tmp_path)
    assert clean.dtype == np.int16
    assert not clean.flaws(rows)[0].any()


def test_flaws_tell_nan_from_infinite() -> None:
    for shape in ((6, 5), (6, 2, 9, 9)):
        values = RNG.normal(size=shape).astype(np.float32)
        values[1, 0] = np.nan
        values[3, 1] = -np.inf
        values[4, 0], values[4, 1] = np.inf, np.nan
        missing, infinite = ArrayScenes(values).flaws(np.array([4, 3, 1, 0]))
        assert missing.tolist() == [True, False, True, False]
        assert infinite.tolist() == [True, True, False, False]


def test_the_mean_of_a_map_is_that_of_its_known_positions() -> None:
    values = RNG.normal(size=(5, 3, 4, 4)).astype(np.float32)
    whole = pooled(ArrayScenes(values)).gather(np.arange(5))
    values[2, 0, 0] = np.nan
    values[3, 1] = np.nan
    found = pooled(ArrayScenes(values)).gather(np.arange(5))
    assert found[2, 0] == pytest.approx(values[2, 0, 1:].mean(), rel=1e-6)
    assert np.isnan(found[3, 1])
    touched = np.zeros((5, 3), bool)
    touched[2, 0] = touched[3, 1] = True
    assert (found[~touched] == whole[~touched]).all()


def test_thumbnails_of_eight_bits_look_the_same(tmp_path: Path) -> None:
    values = RNG.integers(0, 255, (4, 3, 80, 80), dtype=np.uint8)
    plain, marked = ArrayScenes(values), ArrayScenes(values, nodata=0)
    shown = thumbnails(plain, np.arange(4), limits(plain))
    assert thumbnails(marked, np.arange(4), limits(marked)) == shown


def test_a_reduced_jpeg_is_not_mixed_before_it_is_marked(tmp_path: Path) -> None:
    image = np.full((256, 256), 200, np.uint8)
    image[:, ::2] = 0  # a coarser scale would show the mean of both
    Image.fromarray(image).save(tmp_path / "a.jpg", quality=100)
    reduced = read_image(tmp_path / "a.jpg", at_least=16)
    assert reduced.shape[1] < 256
    assert read_image(tmp_path / "a.jpg", at_least=16, nodata=0).shape[1] == 256

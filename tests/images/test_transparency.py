"""A last band that files declare to be transparency: often it is a near-infrared band."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from adagc.datasets import open_collection
from adagc.datasets.folder import folder_collection
from adagc.datasets.inspect.look import inspect
from adagc.errors import DataError
from adagc.images.decode import transparent
from fakes import fake_ucmerced

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


def write(folder: Path, fourth: list[np.ndarray], kind: str = "tif") -> Path:
    """Pictures of 40 x 40 pixels with these fourth bands, which are flagged as alpha."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, band in enumerate(fourth):
        rgb = RNG.integers(0, 256, (40, 40, 3)).astype(band.dtype)
        image = np.dstack([rgb, band])
        if kind == "tif":
            tifffile.imwrite(
                folder / f"{i}.tif", image, photometric="rgb", extrasamples=["unassalpha"]
            )
        else:
            Image.fromarray(image).save(folder / f"{i}.png")
    return folder


def infrared(dtype: type = np.uint8) -> np.ndarray:
    return RNG.integers(20, 200, (40, 40)).astype(dtype)


def mask(dtype: type = np.uint8) -> np.ndarray:
    whole = np.full((40, 40), np.iinfo(dtype).max, dtype)
    whole[:7] = 0
    return whole


@pytest.mark.parametrize("kind", ["tif", "png"])
def test_a_spectral_band_is_kept(kind: str, tmp_path: Path) -> None:
    dark = np.zeros((40, 40), np.uint8)  # one image of nothing but black does not decide
    root = write(tmp_path / "images", [dark, dark, infrared(), infrared()], kind)
    data = folder_collection(root)
    assert data.images.shape == (4, 40, 40)
    assert data.images.gather(np.array([2]))[0, 3].max() > 100
    assert any("4 of 4 images declare" in note and "kept" in note for note in data.notes)
    found = inspect(root)
    assert len(found.images.bands) == 4
    assert found.images.statistics is not None
    assert found.images.statistics.maximum[3] > 100
    assert any("declare" in warning and "kept" in warning for warning in found.warnings)


@pytest.mark.parametrize("kind", ["tif", "png"])
@pytest.mark.parametrize("band", [mask, lambda: np.full((40, 40), 128, np.uint8)])
def test_real_transparency_is_left_out_and_said(kind: str, band, tmp_path: Path) -> None:
    root = write(tmp_path / "images", [band() for _ in range(4)], kind)
    for _ in range(2):  # decoded, and then from the cache
        data = folder_collection(root)
        assert data.images.shape == (3, 40, 40)
        assert data.images.bands == ("red", "green", "blue")
        assert any("4 of 4 images declare" in note and "left out" in note for note in data.notes)
    found = inspect(root)
    assert found.images.shapes == {(3, 40, 40): 4}
    assert any("declare" in warning and "left out" in warning for warning in found.warnings)


def test_published_data_with_transparency_says_so(tmp_path: Path) -> None:
    fake_ucmerced(tmp_path / "ucm", suffix=".png")
    assert open_collection("ucmerced", tmp_path / "ucm").notes == ()
    for path in (tmp_path / "ucm").rglob("*.png"):
        with Image.open(path) as image:
            image.convert("RGBA").save(path)
    data = open_collection("ucmerced", tmp_path / "ucm")
    assert data.images.shape[0] == 3
    assert any("20 of 20 images declare" in note for note in data.notes)


def test_names_of_bands_decide(tmp_path: Path) -> None:
    masks = write(tmp_path / "masks", [mask()] * 3)
    bands = write(tmp_path / "bands", [infrared()] * 3)
    assert folder_collection(masks, bands=tuple("rgba")).images.shape[0] == 4
    assert folder_collection(bands, bands=tuple("rgb")).images.shape[0] == 3
    assert inspect(masks, bands=tuple("rgba")).images.bands == tuple("rgba")
    assert inspect(bands, bands=tuple("rgb")).images.bands == tuple("rgb")


def test_pictures_without_the_band_beside_them(tmp_path: Path) -> None:
    root = write(tmp_path / "images", [mask()] * 2)
    tifffile.imwrite(root / "plain.tif", np.zeros((40, 40, 3), np.uint8), photometric="rgb")
    assert folder_collection(root).images.shape == (3, 40, 40)
    write(root, [mask(), infrared()])
    with pytest.raises(DataError, match=r"different bands: 0\.tif has 4, plain\.tif has 3"):
        folder_collection(root)


def test_a_file_that_is_added_may_change_the_answer(tmp_path: Path) -> None:
    root = write(tmp_path / "images", [mask()] * 3)
    assert folder_collection(root).images.shape[0] == 3
    write(root, [mask(), mask(), mask(), infrared()])
    assert folder_collection(root).images.shape[0] == 4


def test_sixteen_bits(tmp_path: Path) -> None:
    assert folder_collection(write(tmp_path / "a", [mask(np.uint16)] * 2)).images.shape[0] == 3
    assert folder_collection(write(tmp_path / "b", [infrared(np.uint16)] * 2)).images.shape[0] == 4


def test_what_looks_like_transparency() -> None:
    eight, real = np.dtype(np.uint8), np.dtype(np.float32)
    soft = mask()
    soft[7:12] = np.linspace(0, 255, 5, dtype=np.uint8)[:, None]
    assert transparent(soft, eight)
    assert not transparent(infrared(), eight)
    assert transparent(np.ones((4, 4), np.float32), real)
    assert not transparent(RNG.random((40, 40)).astype(np.float32), real)
    gaps = infrared().astype(np.float16)
    gaps[:10] = np.nan
    assert not transparent(gaps, eight)
    assert transparent(np.full((4, 4), np.nan, np.float16), eight)

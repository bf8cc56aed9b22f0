from __future__ import annotations

import io
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from adagc.errors import DataError
from adagc.images.decode import EXTENSIONS, load, peek, read_image, resize

RNG = np.random.default_rng(0)
HWC = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (20, 30, 4), dtype=np.uint16)
FIRST = np.moveaxis(DEEP, -1, 0)


def write_rgb_png(path: Path) -> np.ndarray:
    Image.fromarray(HWC).save(path)
    return np.moveaxis(HWC, -1, 0)


def write_grey_png(path: Path) -> np.ndarray:
    Image.fromarray(HWC[:, :, 0]).save(path)
    return HWC[None, :, :, 0]


def write_palette_png(path: Path) -> np.ndarray:
    image = Image.fromarray(HWC).quantize(16)
    image.save(path)
    return np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)


def write_bilevel_png(path: Path) -> np.ndarray:
    bits = HWC[:, :, 0] > 128
    Image.fromarray(bits).save(path)
    return bits[None] * np.uint8(255)


def write_rgba_png(path: Path) -> np.ndarray:
    Image.fromarray(np.dstack([HWC, HWC[:, :, :1]])).save(path)
    return np.moveaxis(HWC, -1, 0)


def write_grey_alpha_png(path: Path) -> np.ndarray:
    Image.fromarray(HWC[:, :, :2].copy(), mode="LA").save(path)
    return HWC[None, :, :, 0]


def write_deep_grey_png(path: Path) -> np.ndarray:
    Image.fromarray(DEEP[:, :, 0].copy()).save(path)
    return FIRST[:1]


def write_deep_rgb_png(path: Path) -> np.ndarray:
    path.write_bytes(imagecodecs.png_encode(DEEP[:, :, :3].copy()))
    return FIRST[:3]


def write_deep_rgba_png(path: Path) -> np.ndarray:
    path.write_bytes(imagecodecs.png_encode(DEEP))
    return FIRST[:3]


def write_npy_2d(path: Path) -> np.ndarray:
    np.save(path, DEEP[:, :, 0])
    return FIRST[:1]


def write_npy_last(path: Path) -> np.ndarray:
    np.save(path, DEEP.astype(np.float32) / 7)
    return FIRST.astype(np.float32) / 7


def write_npy_first(path: Path) -> np.ndarray:
    np.save(path, FIRST.astype(">i4"))
    return FIRST.astype(np.int32)


def write_npy_bool(path: Path) -> np.ndarray:
    np.save(path, FIRST > 100)
    return (FIRST > 100).astype(np.uint8)


def write_tif_contig(path: Path) -> np.ndarray:
    tifffile.imwrite(path, HWC, photometric="rgb", compression="lzw")
    return np.moveaxis(HWC, -1, 0)


def write_tif_planar(path: Path) -> np.ndarray:
    tifffile.imwrite(path, FIRST, photometric="minisblack", planarconfig="separate")
    return FIRST


def write_tif_samples(path: Path) -> np.ndarray:
    many = RNG.normal(size=(20, 30, 12)).astype(np.float32)
    many[0, 0, 0] = np.nan
    tifffile.imwrite(
        path, many, photometric="minisblack", planarconfig="contig", compression="zstd"
    )
    return np.moveaxis(many, -1, 0)


def write_tif_pages(path: Path) -> np.ndarray:
    with tifffile.TiffWriter(path) as file:
        for band in FIRST:
            file.write(band, photometric="minisblack", contiguous=False)
    return FIRST


def write_tif_single(path: Path) -> np.ndarray:
    tifffile.imwrite(path, FIRST[0].astype(">u2"), byteorder=">", compression="deflate")
    return FIRST[:1]


def write_tif_alpha(path: Path) -> np.ndarray:
    rgba = np.dstack([HWC, HWC[:, :, :1]])
    tifffile.imwrite(path, rgba, photometric="rgb", extrasamples=["unassalpha"])
    return np.moveaxis(HWC, -1, 0)


def write_tif_fourth_band(path: Path) -> np.ndarray:
    four = np.dstack([HWC, HWC[:, :, :1]])
    tifffile.imwrite(path, four, photometric="rgb", extrasamples=["unspecified"])
    return np.moveaxis(four, -1, 0)


def write_tif_palette(path: Path) -> np.ndarray:
    colours = RNG.integers(0, 256, (3, 256)).astype(np.uint16) * 257
    tifffile.imwrite(path, HWC[:, :, 0], photometric="palette", colormap=colours)
    return (colours[:, HWC[:, :, 0]] >> 8).astype(np.uint8)


def write_tif_bigendian_float64(path: Path) -> np.ndarray:
    tifffile.imwrite(path, FIRST[0] / 3, byteorder=">")
    return FIRST[:1] / 3


WRITERS = {
    name.removeprefix("write_"): function
    for name, function in globals().items()
    if name.startswith("write_")
}


@pytest.mark.parametrize("name", WRITERS)
def test_reads_exactly_and_peek_agrees(name: str, tmp_path: Path) -> None:
    kind = next(s for s in ("png", "npy", "tif") if s in name.split("_"))
    path = tmp_path / f"image.{kind}"
    expected = WRITERS[name](path)
    image = read_image(path, alpha=False)
    np.testing.assert_array_equal(image, expected)
    assert image.dtype == expected.dtype.newbyteorder("=")
    assert image.dtype.isnative
    header = peek(path, alpha=False)
    assert header[:4] == (image.shape, image.dtype, image.dtype, "alpha" in name or "rgba" in name)
    assert header.named == ()  # none of these files names its bands


@pytest.mark.parametrize("name", ["rgba_png", "deep_rgba_png", "tif_alpha", "grey_alpha_png"])
def test_alpha_is_kept_unless_it_is_not_wanted(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"image.{'tif' if 'tif' in name else 'png'}"
    without = WRITERS[name](path)
    image = read_image(path)
    assert len(image) == len(without) + 1
    np.testing.assert_array_equal(image[:-1], without)
    assert peek(path)[:2] == (image.shape, image.dtype)


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG"])
def test_jpeg_orientation(suffix: str, tmp_path: Path) -> None:
    picture = Image.new("RGB", (40, 20), "black")
    picture.paste("white", (0, 0, 20, 20))  # left half
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side: turn a quarter clockwise
    path = tmp_path / f"turned{suffix}"
    picture.save(path, format="JPEG", exif=exif)
    image = read_image(path)
    assert image.shape == (3, 40, 20)
    assert peek(path)[:2] == (image.shape, image.dtype)
    assert image[:, :15].min() > 200
    assert image[:, 25:].max() < 50


def test_cmyk_and_grey_jpeg(tmp_path: Path) -> None:
    Image.fromarray(HWC).convert("CMYK").save(tmp_path / "c.jpg")
    Image.fromarray(HWC[:, :, 0]).save(tmp_path / "g.jpg")
    assert read_image(tmp_path / "c.jpg").shape == peek(tmp_path / "c.jpg")[0] == (3, 20, 30)
    assert read_image(tmp_path / "g.jpg").shape == peek(tmp_path / "g.jpg")[0] == (1, 20, 30)


def test_reduced_jpeg_is_close_to_the_whole(tmp_path: Path) -> None:
    small = Image.fromarray(RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    small.resize((640, 480), Image.Resampling.BICUBIC).save(tmp_path / "a.jpg", quality=95)
    reduced = read_image(tmp_path / "a.jpg", at_least=64)
    assert 64 <= min(reduced.shape[1:]) < 480
    whole = resize(read_image(tmp_path / "a.jpg"), 32).astype(float)
    assert np.abs(load(tmp_path / "a.jpg", 32) - whole).mean() < 1.5
    assert np.abs(load(tmp_path / "a.jpg", 32) - whole).max() < 12


def corrupt(kind: str) -> bytes:
    buffer = io.BytesIO()
    noise = Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    if kind == "npy":
        np.save(buffer, np.asarray(noise))
    elif kind == "tif":
        tifffile.imwrite(buffer, np.asarray(noise), photometric="rgb", compression="deflate")
    else:
        noise.save(buffer, format={"jpg": "JPEG"}.get(kind, kind))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["png", "jpg", "tif", "npy"])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.6])
def test_truncated_files_are_named(kind: str, keep: float, tmp_path: Path) -> None:
    whole = corrupt(kind)
    path = tmp_path / f"bad.{kind}"
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError, match=rf"bad\.{kind}: cannot be read .*; replace or remove") as e:
        read_image(path)
    assert "\n" not in str(e.value)


def test_truncated_deep_png(tmp_path: Path) -> None:
    whole = imagecodecs.png_encode(DEEP)
    (tmp_path / "bad.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        read_image(tmp_path / "bad.png")


def test_refuses_what_is_no_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.zeros(5))
    np.save(tmp_path / "complex.npy", np.zeros((4, 4), dtype=complex))
    np.save(tmp_path / "object.npy", np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    (tmp_path / "text.txt").write_text("hello")
    for name, reason in [
        ("flat.npy", "not one picture"),
        ("complex.npy", "complex128 values"),
        ("object.npy", "it is no NumPy file of numbers"),
        ("text.txt", "convert it to one of"),
        ("missing.png", "no such file"),
    ]:
        for function in (read_image, peek):
            with pytest.raises(DataError, match=reason):
                function(tmp_path / name)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("bands", [1, 3, 5])
def test_resize_keeps_dtype_and_mean(dtype: type, bands: int) -> None:
    ramp = np.linspace(10, 120, 64)[None, None, :] * np.ones((bands, 48, 1))
    image = (ramp + np.arange(bands)[:, None, None]).astype(dtype)
    small = resize(image, 12)
    assert small.shape == (bands, 12, 12)
    assert small.dtype == dtype
    np.testing.assert_allclose(small.mean((1, 2)), image.mean((1, 2)), rtol=0.02)
    assert (np.diff(small[:, 5].astype(float), axis=-1) > 0).all()  # left to right, not mirrored


def test_resize_is_antialiased() -> None:
    checks = np.indices((64, 64)).sum(0)[None] % 2 * 200.0
    assert np.abs(resize(checks, 8) - 100).max() < 2  # without a filter it would be 0 or 200


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.int16, np.uint16]), st.just((2, 9, 13)), fill=st.nothing()
    ),
    st.integers(1, 20),
)
def test_resize_stays_in_range(image: np.ndarray, size: int) -> None:
    small = resize(image, size)
    assert small.dtype == image.dtype
    assert (small >= image.min((1, 2), keepdims=True)).all()
    assert (small <= image.max((1, 2), keepdims=True)).all()


def test_resize_is_free_at_the_right_size() -> None:
    image = np.zeros((3, 7, 7))
    assert resize(image, 7) is image


def test_extensions_are_lower_case() -> None:
    assert all(e == e.lower() and e.startswith(".") for e in EXTENSIONS)

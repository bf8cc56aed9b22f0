"""Decode an image file to an array (bands, height, width) in the bit depth of the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from adagc.errors import DataError
from adagc.images.band_names import Named
from adagc.images.missing import mark, marked_dtype
from adagc.images.tiff import Shape, peek_tiff, read_tiff

PILLOW: Final = (".png", ".jpg", ".jpeg")
TIFF: Final = (".tif", ".tiff")
EXTENSIONS: Final = (*PILLOW, *TIFF, ".npy")

_PLAIN_BANDS: Final = {"L": 1, "I;16": 1, "I;16B": 1, "I": 1, "F": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_ALPHA_MODES: Final = {"LA": "L", "RGBA": "RGB"}


class Header(NamedTuple):
    """What is known of an image without its pixels."""

    shape: Shape  # of the image that `read_image` returns
    dtype: np.dtype[Any]  # of that image
    depth: np.dtype[Any]  # of the values in the file, before missing ones become NaN
    alpha: bool  # whether the file declares its last band to be transparency
    named: Named = ()  # what the file calls its bands; shorter if it does not name the last ones


def read_image(
    path: Path,
    *,
    at_least: int | None = None,
    alpha: bool = True,
    nodata: float | None = None,
) -> NDArray[Any]:
    """Decode one file; missing values are NaN.

    Args:
        path: PNG, JPEG, TIFF, GeoTIFF or .npy file.
        at_least: Allows a JPEG to be decoded at a reduced scale, which is faster; no side becomes
            shorter than this number of pixels.
        alpha: Keep a last band that the file declares to be transparency. Many aerial images with
            four bands declare their near-infrared band like this; see `transparent`.
        nodata: Number that stands for missing values, besides the one that a TIFF file names.

    Raises:
        DataError: The file cannot be read, or is not one image of integers or floats.
    """
    path = Path(path)
    suffix = _suffix(path)
    try:
        if suffix == ".npy":
            image = _bands_first(np.load(path, allow_pickle=False))
        elif suffix in TIFF:
            image = read_tiff(path, alpha=alpha)
        else:
            # Reducing would mix missing values with others before they are marked.
            image = _read_pillow(path, at_least if nodata is None else None, alpha)
    except DataError:
        raise
    # decoders raise many kinds of errors (OSError, SyntaxError, struct.error, zlib.error, ...)
    except Exception as error:
        raise DataError(_unreadable(path, error)) from error
    return mark(_plain(path, image), () if nodata is None else (nodata,))


def peek(path: Path, *, alpha: bool = True, nodata: float | None = None) -> Header:
    """What `read_image` would return, from the header of the file alone where possible."""
    path = Path(path)
    suffix = _suffix(path)
    named: Named = ()
    try:
        if suffix == ".npy":
            lazy = _bands_first(np.load(path, allow_pickle=False, mmap_mode="r"))
            found = _shape(lazy.shape), lazy.dtype, lazy.dtype, False
        elif suffix in TIFF:
            found, named = peek_tiff(path, alpha=alpha)
        else:
            found = _peek_pillow(path, alpha)
    except DataError:
        raise
    except Exception as error:
        raise DataError(_unreadable(path, error)) from error
    shape, dtype, depth, declared = found
    dtype = marked_dtype(_plain_dtype(path, dtype), () if nodata is None else (nodata,))
    return Header(shape, dtype, _plain_dtype(path, depth), declared, named)


def transparent(band: NDArray[Any], depth: np.dtype[Any]) -> bool:
    """Whether the values of a band that is declared to be transparency look like transparency.

    Real transparency is constant, or nearly everywhere nothing or all: at most half of the values
    lie between 0 and the largest value. Hardly any value of a spectral band is 0 or the largest.

    Args:
        band: The values.
        depth: Dtype of the values in the file.
    """
    known = band[~np.isnan(band)]
    top = np.iinfo(depth).max if depth.kind in "iu" else 1
    between = np.count_nonzero((known > 0) & (known < top))
    return bool(2 * between <= known.size or known.min() == known.max())


def resize(image: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize (bands, H, W) to size x size pixels with antialiasing; the dtype is kept.

    Results for integer images are rounded and clipped to the range of the dtype. Missing values
    (NaN) are left out of the weighted mean that makes a new pixel, which is itself missing if they
    have more than half of the weight.
    """
    if image.shape[1:] == (size, size):
        return image
    if image.dtype == np.uint8 and image.shape[0] == 3:
        picture = Image.fromarray(np.ascontiguousarray(np.moveaxis(image, 0, -1)))
        return np.moveaxis(np.asarray(_scaled(picture, size)), -1, 0)
    # 32-bit floats hold every 16-bit value exactly; Pillow resizes such bands one at a time only
    work = np.uint8 if image.dtype == np.uint8 else np.float32
    scaled = np.stack([_resize_band(band.astype(work), size) for band in image])
    if image.dtype.kind in "iu" and image.dtype != np.uint8:
        limits = np.iinfo(image.dtype)
        scaled = np.rint(scaled.astype(np.float64)).clip(limits.min, limits.max)
    return scaled.astype(image.dtype, copy=False)


def _resize_band(band: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize one band (H, W) of 8-bit integers or 32-bit floats."""
    missing = np.isnan(band) if band.dtype.kind == "f" else None
    if missing is None or not missing.any():
        return np.asarray(_scaled(Image.fromarray(band), size))
    weight = np.asarray(_scaled(Image.fromarray((~missing).astype(np.float32)), size))
    total = np.asarray(_scaled(Image.fromarray(np.where(missing, np.float32(0), band)), size))
    known = weight >= 0.5
    return np.where(known, total / np.where(known, weight, 1), np.float32(np.nan))


def load(path: Path, size: int, *, alpha: bool = True, nodata: float | None = None) -> NDArray[Any]:
    """Decode a file and resize it to size x size, fast for JPEG files much larger than that."""
    # The JPEG decoder reduces with a simple box filter, so it stops at twice the size and `resize`
    # does the rest.
    return resize(read_image(path, at_least=2 * size, alpha=alpha, nodata=nodata), size)


def _scaled(picture: Image.Image, size: int) -> Image.Image:
    return picture.resize((size, size), Image.Resampling.BILINEAR)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in EXTENSIONS:
        known = ", ".join(EXTENSIONS)
        raise DataError(f"{path}: not an image adagc reads; convert it to one of {known}")
    return suffix


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: no such file; check the path"
    return f"{path}: cannot be read ({why(error)}); replace or remove the file"


def why(error: Exception) -> str:
    """The reason why a file cannot be read, in one line."""
    reason = " ".join(str(error).split()) or type(error).__name__
    if "pickle" in reason or "Python objects" in reason:
        # NumPy takes every file for Python objects that does not begin as its own do, and advises
        # to load them unsafely.
        return "it is no NumPy file of numbers"
    return reason


def _plain(path: Path, image: NDArray[Any]) -> NDArray[Any]:
    return image.astype(_plain_dtype(path, image.dtype), copy=False)


def _plain_dtype(path: Path, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in the byte order of this machine; booleans become 8-bit integers."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind not in "iuf":
        raise DataError(f"{path}: holds {dtype} values; save it as integers or real numbers")
    return dtype.newbyteorder("=")


def _shape(shape: tuple[int, ...]) -> Shape:
    bands, height, width = shape
    return bands, height, width


def _bands_first(array: NDArray[Any]) -> NDArray[Any]:
    """Bring (H, W), (H, W, C) or (C, H, W) to (C, H, W).

    Of three axes the first or the last is taken for the bands, whichever is shorter.
    """
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and array.shape[2] < array.shape[0]:
        array = np.moveaxis(array, 2, 0)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"an array of shape {array.shape} is not one picture")
    return array


# PNG and JPEG


def _deep_png(path: Path) -> tuple[int, int, int] | None:
    """(bands, H, W) of a 16-bit PNG with several bands, which Pillow would reduce to 8 bits.

    None for all other files, which Pillow reads correctly.
    """
    with path.open("rb") as file:
        head = file.read(26)
    if not head.startswith(b"\x89PNG\r\n\x1a\n") or len(head) < 26:
        return None
    width, height, depth, colour = struct.unpack(">IIBB", head[16:26])
    bands = {2: 3, 4: 2, 6: 4}.get(colour)
    return (bands, height, width) if depth == 16 and bands else None


def _without_alpha(bands: int, alpha: bool) -> int:
    return bands if alpha or bands in (1, 3) else bands - 1


def _read_pillow(path: Path, at_least: int | None, alpha: bool) -> NDArray[Any]:
    deep = _deep_png(path)
    if deep is not None:
        import imagecodecs

        pixels: NDArray[Any] = np.asarray(imagecodecs.png_decode(path.read_bytes()))
        pixels = np.moveaxis(pixels, -1, 0)
        return pixels[: _without_alpha(deep[0], alpha)]
    with Image.open(path) as picture:
        if at_least is not None and picture.format in ("JPEG", "MPO"):
            picture.draft(None, (at_least, at_least))
        upright: Image.Image = picture
        if picture.format in ("JPEG", "MPO"):
            upright = ImageOps.exif_transpose(picture)
        mode = _target_mode(upright.mode, alpha)
        array = np.asarray(upright if upright.mode == mode else upright.convert(mode))
    return array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def _target_mode(mode: str, alpha: bool) -> str:
    if mode == "1":
        return "L"
    if mode not in _PLAIN_BANDS:  # palettes, CMYK, YCbCr, ... are converted to colours
        return "RGB"
    return mode if alpha else _ALPHA_MODES.get(mode, mode)


def _peek_pillow(path: Path, alpha: bool) -> tuple[Shape, np.dtype[Any], np.dtype[Any], bool]:
    """Shape and dtype that `_read_pillow` would return (twice), and whether the file has alpha."""
    deep = _deep_png(path)
    if deep is not None:
        kept, depth = _without_alpha(deep[0], alpha), np.dtype(np.uint16)
        return (kept, *deep[1:]), depth, depth, deep[0] in (2, 4)
    with Image.open(path) as picture:
        width, height = picture.size
        if picture.format in ("JPEG", "MPO") and picture.getexif().get(0x0112, 1) in (5, 6, 7, 8):
            width, height = height, width
        mode, declared = _target_mode(picture.mode, alpha), picture.mode in _ALPHA_MODES
    wide = {"I;16": np.uint16, "I;16B": np.uint16, "I": np.int32, "F": np.float32}
    found = np.dtype(wide.get(mode, np.uint8))
    return (_PLAIN_BANDS[mode], height, width), found, found, declared

"""Decode an image file to an array (bands, height, width) in the bit depth of the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from adagc.errors import DataError

Shape = tuple[int, int, int]

PILLOW: Final = (".png", ".jpg", ".jpeg")
TIFF: Final = (".tif", ".tiff")
EXTENSIONS: Final = (*PILLOW, *TIFF, ".npy")

_PLAIN_BANDS: Final = {"L": 1, "I;16": 1, "I;16B": 1, "I": 1, "F": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_ALPHA_MODES: Final = {"LA": "L", "RGBA": "RGB"}


def read_image(path: Path, *, at_least: int | None = None, alpha: bool = False) -> NDArray[Any]:
    """Decode one file; no-data values and NaN are returned unchanged.

    Args:
        path: PNG, JPEG, TIFF, GeoTIFF or .npy file.
        at_least: Allows a JPEG to be decoded at a reduced scale, which is faster; no side becomes
            shorter than this number of pixels.
        alpha: Keep a band that the file declares to be transparency. Many aerial images with four
            bands declare their near-infrared band like this.

    Raises:
        DataError: The file cannot be read, or is not one image of integers or floats.
    """
    path = Path(path)
    suffix = _suffix(path)
    try:
        if suffix == ".npy":
            image = _bands_first(np.load(path, allow_pickle=False))
        elif suffix in TIFF:
            image = _read_tiff(path, alpha)
        else:
            image = _read_pillow(path, at_least, alpha)
    except DataError:
        raise
    # decoders raise many kinds of errors (OSError, SyntaxError, struct.error, zlib.error, ...)
    except Exception as error:
        raise DataError(_unreadable(path, error)) from error
    return _plain(path, image)


def peek(path: Path, *, alpha: bool = False) -> tuple[Shape, np.dtype[Any]]:
    """Shape and dtype that `read_image` would return, from the header alone where possible."""
    path = Path(path)
    suffix = _suffix(path)
    try:
        if suffix == ".npy":
            lazy = _bands_first(np.load(path, allow_pickle=False, mmap_mode="r"))
            return _shape(lazy.shape), _plain_dtype(path, lazy.dtype)
        if suffix in TIFF:
            return _peek_tiff(path, alpha)
        return _peek_pillow(path, alpha)
    except DataError:
        raise
    except Exception as error:
        raise DataError(_unreadable(path, error)) from error


def resize(image: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize (bands, H, W) to size x size pixels with antialiasing; the dtype is kept.

    Results for integer images are rounded and clipped to the range of the dtype.
    """
    if image.shape[1:] == (size, size):
        return image
    if image.dtype == np.uint8 and image.shape[0] == 3:
        picture = Image.fromarray(np.ascontiguousarray(np.moveaxis(image, 0, -1)))
        return np.moveaxis(np.asarray(_scaled(picture, size)), -1, 0)
    # 32-bit floats hold every 16-bit value exactly; Pillow resizes such bands one at a time only
    work = np.uint8 if image.dtype == np.uint8 else np.float32
    scaled = np.stack(
        [np.asarray(_scaled(Image.fromarray(band.astype(work)), size)) for band in image]
    )
    if image.dtype.kind in "iu" and image.dtype != np.uint8:
        limits = np.iinfo(image.dtype)
        scaled = np.rint(scaled.astype(np.float64)).clip(limits.min, limits.max)
    return scaled.astype(image.dtype, copy=False)


def load(path: Path, size: int, *, alpha: bool = False) -> NDArray[Any]:
    """Decode a file and resize it to size x size, fast for JPEG files much larger than that."""
    # The JPEG decoder reduces with a simple box filter, so it stops at twice the size and `resize`
    # does the rest.
    return resize(read_image(path, at_least=2 * size, alpha=alpha), size)


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
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{path}: cannot be read ({reason}); replace or remove the file"


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


def _peek_pillow(path: Path, alpha: bool) -> tuple[Shape, np.dtype[Any]]:
    deep = _deep_png(path)
    if deep is not None:
        return (_without_alpha(deep[0], alpha), *deep[1:]), np.dtype(np.uint16)
    with Image.open(path) as picture:
        width, height = picture.size
        if picture.format in ("JPEG", "MPO") and picture.getexif().get(0x0112, 1) in (5, 6, 7, 8):
            width, height = height, width
        mode = _target_mode(picture.mode, alpha)
    dtype = {"I;16": np.uint16, "I;16B": np.uint16, "I": np.int32, "F": np.float32}
    return (_PLAIN_BANDS[mode], height, width), np.dtype(dtype.get(mode, np.uint8))


# TIFF


def _band_axis(axes: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The axes and shape of a TIFF series without axes of length 1, except for Y and X.

    Besides Y and X at most one axis may be left, which holds the bands.
    """
    if "Y" not in axes or "X" not in axes:
        raise ValueError(f"axes {axes} hold no picture")
    kept = [(a, n) for a, n in zip(axes, shape, strict=True) if a in "YX" or n > 1]
    if len(kept) > 3:
        raise ValueError(f"axes {axes} of shape {shape} are more than bands, rows and columns")
    return "".join(a for a, _ in kept), tuple(n for _, n in kept)


def _declares_alpha(page: Any) -> bool:
    # in the tag ExtraSamples 1 and 2 mean alpha, 0 means an unspecified further band
    samples = tuple(page.extrasamples or ())
    return bool(samples) and int(samples[-1]) in (1, 2) and int(page.samplesperpixel) in (2, 4)


def _pages(file: Any) -> list[Any]:
    """The series of a TIFF file that make up the image.

    This is either one series with all bands, or several of the same shape with one band each.
    Overviews have another shape and masks another dtype, so they are left out.
    """
    first = file.series[0]
    if len(_band_axis(first.axes, first.shape)[0]) > 2:
        return [first]
    return [s for s in file.series if (s.shape, s.dtype) == (first.shape, first.dtype)]


def _read_tiff(path: Path, alpha: bool) -> NDArray[Any]:
    import tifffile

    with tifffile.TiffFile(path) as file:
        pages = _pages(file)
        axes, shape = _band_axis(pages[0].axes, pages[0].shape)
        # one thread per file: many files are read side by side
        arrays = [series.asarray(maxworkers=1).reshape(shape) for series in pages]
        if len(shape) == 2:
            image: NDArray[Any] = np.stack([a if axes == "YX" else a.T for a in arrays])
        else:
            image = arrays[0].transpose([axes.index(a) for a in sorted(axes, key="YX".find)])
        colours = getattr(file.pages[0], "colormap", None)
        if colours is not None and len(image) == 1:
            return (np.asarray(colours)[:, image[0]] >> 8).astype(np.uint8)
        return image[:-1] if _declares_alpha(file.pages[0]) and not alpha else image


def _peek_tiff(path: Path, alpha: bool) -> tuple[Shape, np.dtype[Any]]:
    import tifffile

    with tifffile.TiffFile(path) as file:
        pages, page = _pages(file), file.pages[0]
        axes, shape = _band_axis(pages[0].axes, pages[0].shape)
        lengths = dict(zip(axes, shape, strict=True))
        bands = next((lengths[a] for a in axes if a not in "YX"), len(pages))
        if getattr(page, "colormap", None) is not None and bands == 1:
            return (3, lengths["Y"], lengths["X"]), np.dtype(np.uint8)
        if _declares_alpha(page) and not alpha:
            bands -= 1
        dtype = _plain_dtype(path, np.dtype(pages[0].dtype))
        return (bands, lengths["Y"], lengths["X"]), dtype

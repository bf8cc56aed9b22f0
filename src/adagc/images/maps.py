"""Read maps of classes: images of one band, in which the number of a pixel stands for its class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adagc.errors import DataError
from adagc.images.decode import TIFF, why

EXTENSIONS: Final = (".png", *TIFF, ".npy")

_MOST = 1 << 16  # different numbers in one map; more are measurements, not classes
_LIMITS = np.iinfo(np.int32)


def count_codes(path: Path) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
    """The numbers that occur in a map, in ascending order, and how many pixels each of them has.

    Raises:
        DataError: The file cannot be read, or holds no numbers of classes. The message does not
            begin with its path.
    """
    codes, counts = np.unique(read_map(path), return_counts=True)
    if codes.dtype.kind == "f":
        whole = ~np.isnan(codes)  # pixels without a number have no class
        codes, counts = codes[whole], counts[whole]
        if (codes != np.floor(codes)).any():
            part = codes[codes != np.floor(codes)][0]
            raise DataError(f"holds {part:g}: a map of classes holds whole numbers")
    if len(codes) > _MOST:
        raise DataError(f"holds {len(codes):,} different numbers: it is no map of classes")
    if len(codes) and not _LIMITS.min <= codes[0] <= codes[-1] <= _LIMITS.max:
        raise DataError(f"holds numbers up to {codes[-1]:g}: classes have numbers below 2^31")
    return codes.astype(np.int32), counts.astype(np.uint32)


def read_map(path: Path) -> NDArray[Any]:
    """The numbers of the pixels as they are in the file, (H, W).

    Of an image with a palette these are the places in the palette, not the colours; a number that
    the file declares to mean "no data" stays as it is.

    Args:
        path: PNG, TIFF, GeoTIFF or .npy file.

    Raises:
        DataError: The file cannot be read, or is not an image of one band. The message does not
            begin with its path.
    """
    suffix = path.suffix.lower()
    try:
        if suffix in TIFF:
            pixels = _read_tiff(path)
        elif suffix == ".npy":
            pixels = np.load(path, allow_pickle=False)
        elif suffix == ".png":
            pixels = _read_png(path)
        else:
            raise DataError(
                f"a map of classes cannot be a {suffix or 'file without extension'}: save it as"
                f" {', '.join(EXTENSIONS)}, which keep numbers as they are"
            )
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError("no such file") from None
    except Exception as error:  # decoders raise many kinds of errors
        raise DataError(f"cannot be read ({why(error)})") from None
    if pixels.ndim == 3 and 1 in (pixels.shape[0], pixels.shape[2]):
        pixels = pixels.reshape([length for length in pixels.shape if length > 1] or [1])
    if pixels.ndim != 2 or not pixels.size:
        raise DataError(
            f"has the shape {pixels.shape}: a map of classes has one band, with a number per pixel"
        )
    if pixels.dtype.kind not in "biuf":
        raise DataError(f"holds {pixels.dtype} values: a map of classes holds whole numbers")
    return pixels


def _read_tiff(path: Path) -> NDArray[Any]:
    """The first page, which is the map: others are overviews and masks."""
    import imagecodecs
    import tifffile

    try:
        # Five times as fast as tifffile, and without the lock that keeps threads apart.
        return np.asarray(imagecodecs.tiff_decode(path.read_bytes(), index=0))
    except FileNotFoundError:
        raise
    except Exception:
        with tifffile.TiffFile(path) as file:  # kinds of files that libtiff was built without
            return np.asarray(file.pages[0].asarray(maxworkers=1))


def _read_png(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        head = file.read(26)
    depth, colour = (head[24], head[25]) if len(head) == 26 else (8, 0)
    with Image.open(path) as picture:
        pixels = np.asarray(picture)
    # Pillow stretches grey values of 2 and 4 bits to 0 to 255.
    return pixels // {2: 85, 4: 17}[depth] if colour == 0 and depth in (2, 4) else pixels

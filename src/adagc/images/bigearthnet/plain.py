"""Read the plain TIFF files of single bands some ten times as fast as a general reader does.

A patch has fourteen small files, so that reading it is mostly opening them. What is not plain
(tiles, several bands, other compressions) is left to `adagc.images.tiff`.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.decode import read_image

_SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}  # types of tags whose values are counted or measured
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _OFFSETS = 256, 257, 258, 259, 273
_SAMPLES, _COUNTS, _PREDICTOR, _TILES, _FORMAT, _NODATA = 277, 279, 317, 322, 339, 42113
_FORMATS = {1: "u", 2: "i", 3: "f"}
_DEFLATE = (8, 32946)


def read_band(path: Path) -> NDArray[Any]:
    """The values of a file with one band, (H, W); DataError if it cannot be read."""
    try:
        content = path.read_bytes()
        values = _plain(content)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (struct.error, ValueError, zlib.error, KeyError, IndexError):
        values = None  # the general reader says what is wrong
    if values is not None:
        return values
    image = read_image(path)
    if len(image) != 1:
        raise DataError(f"{path}: has {len(image)} bands instead of one")
    band: NDArray[Any] = image[0]
    return band


def _plain(content: bytes) -> NDArray[Any] | None:
    """The band in a classic TIFF of one strip-wise band; None if it is anything else."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(content[:4])
    if order is None:
        return None
    (at,) = struct.unpack_from(f"{order}I", content, 4)
    tags = _tags(content, at, order)

    def one(tag: int, default: int) -> int:
        found = tags.get(tag, (default,))
        return found[0] if len(found) == 1 else -1

    compression, form = one(_COMPRESSION, 1), _FORMATS.get(one(_FORMAT, 1))
    if (
        _TILES in tags
        or _NODATA in tags
        or one(_SAMPLES, 1) != 1
        or one(_PREDICTOR, 1) != 1
        or one(_BITS, 1) not in (8, 16, 32, 64)
        or form is None
        or compression not in (1, *_DEFLATE)
    ):
        return None
    height, width = one(_HEIGHT, 0), one(_WIDTH, 0)
    dtype = np.dtype(f"{order}{form}{one(_BITS, 1) // 8}")
    strips = [
        content[start : start + count]
        for start, count in zip(tags[_OFFSETS], tags[_COUNTS], strict=True)
    ]
    if compression != 1:
        strips = [zlib.decompress(strip) for strip in strips]
    data = strips[0] if len(strips) == 1 else b"".join(strips)
    values = np.frombuffer(data, dtype, count=height * width).reshape(height, width)
    return values.astype(dtype.newbyteorder("="), copy=False)


def _tags(content: bytes, at: int, order: str) -> dict[int, tuple[int, ...]]:
    """The whole numbers of every tag of the first page; others, such as coordinates, are empty."""
    (count,) = struct.unpack_from(f"{order}H", content, at)
    tags: dict[int, tuple[int, ...]] = {}
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", content, entry)
        letter = _SIZES.get(kind)
        if letter is None:
            tags[tag] = ()
            continue
        form = f"{order}{number}{letter}"
        place = entry + 8
        if struct.calcsize(form) > 4:
            (place,) = struct.unpack_from(f"{order}I", content, place)
        tags[tag] = struct.unpack_from(form, content, place)
    return tags

"""Pictures to look at: images of any bit depth and number of bands, as PNG, JPEG or WebP."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.base import SceneDataset

SIDE = 144  # longest side of a thumbnail in pixels
SAMPLE = 64  # number of images from which the range of values to show is measured
TINY = 64  # up to this side length images are stored unchanged and shown with square pixels
SHARP = 256  # up to this side pictures to look at closely are stored without loss
_FEWEST, _USUAL = 8, 512 * 512  # images at least; pixels of an image up to which all are taken
PERCENTILES = (2, 98)  # darkest and brightest value to show
_PIXELS = 2**14  # pixels of an image from which its range is measured
_MIDDLE = 128  # grey of a band whose values are all equal

Limits = NDArray[np.float64]  # (channels, 2) lowest and highest value to show


def channels_of(image: NDArray[Any], channels: Sequence[int]) -> NDArray[Any]:
    """(len(channels), H, W) of an image (bands, H, W); -1 stands for the ratio of the first two.

    Radar in decibel is logarithmic, and mostly negative: there a ratio is a difference.
    """
    chosen = image[[channel for channel in channels if channel >= 0]]
    if -1 not in channels:
        return chosen
    co, cross = chosen[:2].astype(np.float32)
    if np.any(chosen < 0):
        ratio = co - cross
    else:
        ratio = np.full_like(co, np.nan)
        np.divide(co, cross, out=ratio, where=cross > 0)
    return np.stack([co, cross, ratio])


def range_of(values: NDArray[Any]) -> Limits:
    """The range of each channel of values (channels, ...) to show, without extreme ones.

    Missing and infinite values do not count; a channel without any other has the range 0 to 0.
    """
    flat = values.reshape(len(values), -1)
    ranges = np.zeros((len(values), 2))
    for channel, row in enumerate(flat):
        finite = row[np.isfinite(row)]
        if finite.size:
            # The nearest value, because between huge ones there is no mean.
            ranges[channel] = np.percentile(
                finite.astype(np.float64), PERCENTILES, method="nearest"
            )
    return ranges


def thinned(image: NDArray[Any]) -> NDArray[Any]:
    """(channels, at most some 16,000) values, evenly from all of an image (channels, H, W)."""
    step = max(1, int(np.ceil(np.sqrt(image.shape[1] * image.shape[2] / _PIXELS))))
    return image[:, ::step, ::step].reshape(len(image), -1)


def limits(images: SceneDataset, channels: Sequence[int] | None = None) -> Limits | None:
    """Lowest and highest value to show in each channel; None for 8-bit integers, shown as they are.

    These are the 2nd and 98th percentile over images from the whole data set. One range for all
    images keeps a lake darker than a roof and does not turn noise on open water into colours. It is
    measured once and kept as long as the images are in use.

    Args:
        images: The data set.
        channels: Numbers of the bands to show, -1 for a ratio; the natural ones by default.
    """
    chosen = images.rgb if channels is None else tuple(channels)
    if -1 not in chosen:
        if images.dtype == np.uint8:
            return None
        if images.depth == np.uint8:  # missing values made floats of them
            return np.array([[0.0, 255.0]] * len(chosen))
    kept = _LIMITS.setdefault(images, {})
    if chosen not in kept:
        # Of large images fewer, because reading them takes the time: whoever looks waits for it.
        height, width = images.shape[1:]
        fewer = max(_FEWEST, SAMPLE * _USUAL // max(1, height * width))
        count = min(SAMPLE, fewer, len(images))
        rows = np.linspace(0, len(images) - 1, count).round().astype(np.int64)
        parts = list(_sampled(images, rows, chosen))
        if not parts:
            raise DataError(
                "none of the images from which the range of values is taken can be read"
            )
        kept[chosen] = range_of(np.concatenate(parts, axis=1))
    return kept[chosen]


def _sampled(
    images: SceneDataset, rows: NDArray[np.int64], channels: Sequence[int]
) -> Iterator[NDArray[Any]]:
    """Values of these images, one at a time: files of a folder need not have the same size.

    Those that cannot be read are left out, because they must not keep anybody from the others.
    """
    for row in rows:
        with suppress(DataError):
            yield thinned(channels_of(images.gather(np.array([row]))[0], channels))


_LIMITS: WeakKeyDictionary[SceneDataset, dict[tuple[int, ...], Limits]] = WeakKeyDictionary()


def eight_bits(
    images: SceneDataset, row: int, channels: Sequence[int], *, alone: bool = False
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """(channels, H, W) values from 0 to 255 of one image, and (H, W) where it has any.

    Args:
        images: The data set.
        row: Which image.
        channels: Numbers of the bands to show, -1 for a ratio.
        alone: Stretch by the values of this image instead of those of the data set.
    """
    values = channels_of(images.gather(np.array([row], dtype=np.int64))[0], channels)
    known = np.ones(values.shape[1:], dtype=np.bool_)
    if values.dtype.kind == "f":
        known = ~np.isnan(values).any(axis=0)
    between = range_of(thinned(values)) if alone else limits(images, channels)
    return values if between is None else stretch(values, between), known


def thumbnails(images: SceneDataset, rows: NDArray[np.int64], between: Limits | None) -> list[str]:
    """A data URI for each of these images, in natural colours as far as the bands allow.

    Args:
        images: The images of the data set.
        rows: Which of them to show.
        between: The range of values to show, from `limits`.
    """
    if not len(rows):
        return []
    values = images.gather(np.asarray(rows, dtype=np.int64))[:, list(images.rgb)]
    found = []
    for picture in values:
        shown = picture if between is None else stretch(picture, between)
        small = max(shown.shape[1:]) <= TINY
        data, kind = encode(shown, longest=TINY if small else SIDE, quality=None if small else 82)
        found.append(f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}")
    return found


def stretch(values: NDArray[Any], between: Limits) -> NDArray[np.uint8]:
    """Map values (channels, H, W) in the ranges `between` to 0 ... 255; NaN becomes black.

    Values outside a range are the darkest or the brightest, also infinite ones. Equal values, whose
    range has no width, are grey.
    """
    shown = np.empty(values.shape, dtype=np.uint8)
    # Differences of wide integers and of large floats need 64 bits; others are twice as fast in 32.
    narrow = values.dtype.itemsize <= 2 or values.dtype == np.float32
    work = np.dtype(np.float32 if narrow and np.abs(between).max() < 1e30 else np.float64)
    for band, (low, high) in enumerate(between):
        if not high > low:
            shown[band] = np.where(np.isnan(values[band]), 0, _MIDDLE)
            continue
        part = np.clip(values[band].astype(work), work.type(low), work.type(high))
        if work == np.float64:  # the difference of huge values would be infinite
            part, low, high = part / 2, low / 2, high / 2
        part -= work.type(low)
        part *= work.type(255 / (high - low))
        np.rint(part, out=part)
        shown[band] = np.nan_to_num(part, copy=False, nan=0.0)
    return shown


def encode(
    shown: NDArray[np.uint8],
    *,
    longest: int,
    quality: int | None = 92,
    known: NDArray[np.bool_] | None = None,
) -> tuple[bytes, str]:
    """An encoded picture and its media type, from (1 or 3, H, W) values of 8 bits.

    Args:
        shown: Grey values, or red, green and blue.
        longest: Longest side in pixels; larger pictures are made smaller.
        quality: Of the JPEG or WebP; None for a PNG, which loses nothing.
        known: (H, W) where the image has values: the rest is made transparent.
    """
    from PIL import Image

    planes = list(shown) if len(shown) == 3 else [shown[0]]
    modes = "RGB" if len(planes) == 3 else "L"
    if known is not None:
        planes.append(known.astype(np.uint8) * 255)
        modes += "A"
    if len(planes) == 1:
        drawn = Image.fromarray(np.ascontiguousarray(planes[0]))
    else:
        bands = [Image.fromarray(np.ascontiguousarray(plane)) for plane in planes]
        drawn = Image.merge(modes, bands)
    if max(drawn.size) > longest:
        drawn.thumbnail((longest, longest), Image.Resampling.LANCZOS, reducing_gap=2.0)
    buffer = io.BytesIO()
    if quality is None:
        drawn.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue(), "image/png"
    if known is not None:
        # JPEG knows no transparency, and a large PNG takes several times as long.
        drawn.save(buffer, "WEBP", quality=quality, method=0)
        return buffer.getvalue(), "image/webp"
    # Full resolution of colours: borders between land covers are often borders of colour alone.
    drawn.save(buffer, "JPEG", quality=quality, subsampling=0 if quality > 90 else 2)
    return buffer.getvalue(), "image/jpeg"

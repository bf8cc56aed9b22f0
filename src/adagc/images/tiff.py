"""Read TIFF and GeoTIFF files: bands in any layout, palettes, transparency, no-data values."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from adagc.images.band_names import Named
from adagc.images.missing import mark, marked_dtype

Shape = tuple[int, int, int]


def read_tiff(path: Path, *, alpha: bool) -> NDArray[Any]:
    """The image (bands, H, W), with NaN where it has the no-data value that the file names.

    Args:
        path: The file.
        alpha: Keep a last band that the file declares to be transparency.
    """
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
        nodata = _nodata(file.pages[0])
        colours = getattr(file.pages[0], "colormap", None)
        if colours is not None and len(image) == 1:
            return _coloured(image, np.asarray(colours), nodata)
        if _declares_alpha(file.pages[0]) and not alpha:
            image = image[:-1]
        return mark(image, nodata)


Peeked = tuple[Shape, np.dtype[Any], np.dtype[Any], bool]


def peek_tiff(path: Path, *, alpha: bool) -> tuple[Peeked, Named]:
    """What `read_tiff` would return, without reading it, and what the file calls its bands.

    Of the image these are the shape, the dtype, the dtype in the file, and if it has transparency.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        pages, page = _pages(file), file.pages[0]
        axes, shape = _band_axis(pages[0].axes, pages[0].shape)
        lengths = dict(zip(axes, shape, strict=True))
        bands = next((lengths[a] for a in axes if a not in "YX"), len(pages))
        depth, nodata = np.dtype(pages[0].dtype), _nodata(page)
        marked = marked_dtype(depth, nodata)
        if getattr(page, "colormap", None) is not None and bands == 1:
            depth, marked = np.dtype(np.uint8), np.dtype(np.uint8 if marked == depth else "f2")
            return ((3, lengths["Y"], lengths["X"]), marked, depth, False), ()
        declared = _declares_alpha(page)
        if declared and not alpha:
            bands -= 1
        return ((bands, lengths["Y"], lengths["X"]), marked, depth, declared), _named(page)


def _named(page: Any) -> Named:
    """The names that GDAL wrote for bands; None for a band without one."""
    tag = page.tags.get("GDAL_METADATA")
    found: dict[int, str] = {}
    try:
        items = [] if tag is None else list(ElementTree.fromstring(str(tag.value).strip("\0 ")))
        for item in items:
            if item.get("role") == "description" and (item.text or "").strip():
                found[int(item.get("sample", "0"))] = str(item.text).strip()
    except (ElementTree.ParseError, ValueError):  # not written by GDAL
        found = {}
    return tuple(found.get(number) for number in range(max(found, default=-1) + 1))


def _pages(file: Any) -> list[Any]:
    """The series of a TIFF file that make up the image.

    This is either one series with all bands, or several of the same shape with one band each.
    Overviews have another shape and masks another dtype, so they are left out.
    """
    first = file.series[0]
    if len(_band_axis(first.axes, first.shape)[0]) > 2:
        return [first]
    return [s for s in file.series if (s.shape, s.dtype) == (first.shape, first.dtype)]


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


def _nodata(page: Any) -> tuple[float, ...]:
    """The number that means "no data" in this file, if its tag GDAL_NODATA names one."""
    tag = page.tags.get("GDAL_NODATA")
    try:
        return () if tag is None else (float(str(tag.value).strip("\0 ")),)
    except ValueError:  # the tag does not hold a number, so no value can be equal to it
        return ()


def _coloured(
    image: NDArray[Any], colours: NDArray[Any], nodata: tuple[float, ...]
) -> NDArray[Any]:
    """The colours (3, H, W) of an image (1, H, W) whose values are numbers of a palette."""
    colour = (colours[:, image[0]] >> 8).astype(np.uint8)
    marked = mark(image, nodata)
    if marked.dtype == image.dtype:
        return colour
    return np.where(np.isnan(marked), np.nan, colour).astype(np.float16)

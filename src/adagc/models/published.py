"""The bands of published weights whose files do not name them.

A filter of the first layer has a plane per band; which band that is only follows from where the
weights come from. What is known here was read from the sources of the programs that made them:

* reBEN (BigEarthNet version 2): networks of timm below `model.vision_encoder.`, in which VH comes
  before VV, B8A is the last of the Sentinel-2 bands, and Sentinel-1 comes after Sentinel-2.
* torchgeo: networks of timm, known by the name of the file only, in which VV comes before VH and
  Sentinel-2 has all 13 bands, B10 included.
"""

from __future__ import annotations

from typing import Final

_S2: Final = ("B02", "B03", "B04", "B08", "B05", "B06", "B07", "B11", "B12", "B8A")
_S1: Final = ("VH", "VV")
_RGB: Final = ("B04", "B03", "B02")

_REBEN_PREFIX: Final = "model.vision_encoder."
_REBEN: Final = {
    bands: f"reBEN, {len(bands)} bands" for bands in (_S1, _RGB, (*_RGB, "B08"), _S2, (*_S2, *_S1))
}
_TORCHGEO: Final = {
    "sentinel2_all": (
        *("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10"),
        *("B11", "B12"),
    ),
    "sentinel2_rgb": _RGB,
    "sentinel1_all": ("VV", "VH"),
}


def published_bands(name: str, prefix: str, planes: int) -> tuple[tuple[str, ...], str] | None:
    """The bands of the first layer, and whose weights these are; None if that is not known.

    Args:
        name: Name of the file.
        prefix: What stands before the names of timm in the keys.
        planes: Number of bands of the first layer.
    """
    if prefix == _REBEN_PREFIX:
        return next(((bands, who) for bands, who in _REBEN.items() if len(bands) == planes), None)
    for mark, bands in _TORCHGEO.items():
        if mark in name.lower() and len(bands) == planes:
            return bands, f"torchgeo, {mark}"
    return None

"""Render a land-cover map as the values that Sentinel-1 and Sentinel-2 would measure.

Every pixel is a mixture of pure materials (needles, leaves, dry grass, soil, roofs, water, ...)
with known spectra. Each class has a usual mixture, which is changed per scene, per parcel and by
texture along four axes: woody or open, needles or leaves, green or dry, bright or dark. So classes
overlap as real ones do: a pasture in a dry year resembles natural grassland, and mixed forest is
between broad-leaved and coniferous forest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adagc.images.synthetic.landcover import CLASSES
from adagc.images.synthetic.noise import Bytes, Floats, SceneNoise, smooth

RADAR = ("VV", "VH")
OPTICAL = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")
BANDS = RADAR + OPTICAL
WAVELENGTHS = (443, 490, 560, 665, 705, 740, 783, 842, 865, 945, 1610, 2190)  # nm
RADAR_SCALE = 100  # stored radar values are hundredths of a decibel
OPTICAL_SCALE = 10_000  # stored optical values are reflectance in ten-thousandths, as in Sentinel-2
# Number of independent looks that a radar pixel averages (more looks, less speckle), about that of
# Sentinel-1 ground-range products.
_LOOKS = 5.0


class Material(NamedTuple):
    """A pure material: radar backscatter in dB (VV, VH), reflectance in per cent, and four axes."""

    radar: tuple[float, float]
    optical: tuple[float, ...]  # in the order of OPTICAL
    axes: tuple[float, float, float, float]  # how woody, needle-leaved, green, bright it is


MATERIALS = {
    "lake": Material(
        (-19.0, -26.5),
        (3.0, 2.8, 2.6, 1.6, 1.3, 1.1, 1.0, 0.9, 0.8, 0.7, 0.4, 0.3),
        (0.0, 0.0, 0.0, -1.0),
    ),
    "sea": Material(
        (-16.0, -25.0),
        (4.4, 3.7, 2.5, 1.3, 0.9, 0.7, 0.7, 0.6, 0.6, 0.5, 0.3, 0.2),
        (0.0, 0.0, 0.0, -1.0),
    ),
    "silt": Material(
        (-18.0, -26.0),
        (4.8, 5.2, 6.8, 5.6, 4.6, 2.8, 2.6, 2.0, 1.8, 1.5, 0.6, 0.4),
        (0.0, 0.0, 0.0, 1.0),
    ),
    "crop": Material(
        (-10.5, -17.0),
        (2.5, 3.4, 6.5, 3.5, 10.0, 32.0, 42.0, 45.0, 46.0, 45.0, 20.0, 9.0),
        (-0.5, 0.0, 1.0, 0.0),
    ),
    "grass": Material(
        (-12.5, -19.0),
        (3.0, 4.0, 7.5, 5.0, 12.0, 27.0, 33.0, 35.0, 36.0, 36.0, 23.0, 12.0),
        (-0.5, 0.0, 0.8, -0.3),
    ),
    "straw": Material(
        (-12.5, -19.5),
        (5.5, 7.5, 11.0, 14.0, 17.5, 21.0, 23.0, 26.0, 28.0, 30.0, 34.0, 23.0),
        (-0.5, 0.0, -1.0, 0.5),
    ),
    "leaves": Material(
        (-9.2, -14.6),
        (2.0, 2.5, 4.6, 2.6, 8.0, 26.0, 35.0, 38.0, 40.0, 40.0, 17.0, 7.0),
        (1.0, -1.0, 0.3, 0.0),
    ),
    "needles": Material(
        (-9.4, -15.0),
        (1.5, 1.8, 3.1, 2.0, 4.6, 14.0, 17.5, 19.0, 20.0, 20.0, 9.0, 4.2),
        (1.0, 1.0, 0.0, 0.0),
    ),
    "shrub": Material(
        (-10.5, -16.5),
        (2.8, 3.6, 5.6, 5.0, 8.5, 16.0, 19.0, 21.0, 22.0, 23.0, 19.0, 11.0),
        (0.4, 0.0, -0.2, 0.0),
    ),
    "chalk": Material(
        (-12.5, -20.5),
        (8.5, 10.5, 14.5, 19.0, 21.0, 23.0, 24.5, 26.5, 28.5, 30.0, 38.0, 33.0),
        (-0.5, 0.0, -1.0, 1.0),
    ),
    "loam": Material(
        (-11.5, -19.5),
        (4.6, 5.6, 7.8, 9.8, 11.2, 12.5, 13.5, 15.0, 16.0, 17.0, 22.0, 19.0),
        (-0.5, 0.0, -1.0, -1.0),
    ),
    "sand": Material(
        (-16.5, -24.5),
        (15.0, 19.0, 25.0, 30.0, 32.0, 33.0, 34.0, 36.0, 37.0, 38.0, 45.0, 41.0),
        (0.0, 0.0, -0.3, 0.5),
    ),
    "concrete": Material(
        (-3.0, -10.5),
        (15.0, 17.0, 19.5, 21.5, 22.5, 23.5, 24.5, 26.0, 27.0, 27.0, 27.0, 25.0),
        (-0.3, 0.0, -0.3, 1.0),
    ),
    "roofs": Material(
        (-5.5, -12.5),
        (7.5, 8.5, 10.0, 12.5, 13.5, 14.5, 15.5, 17.0, 17.5, 18.0, 20.0, 18.0),
        (-0.2, 0.0, -0.3, -0.7),
    ),
    "reeds": Material(
        (-10.5, -17.0),
        (2.8, 3.4, 5.2, 4.6, 7.8, 13.5, 16.0, 17.5, 18.0, 18.0, 12.0, 6.0),
        (0.0, 0.0, 0.4, -0.5),
    ),
}


class Cover(NamedTuple):
    """How a class looks: its usual mixture of materials, and how it varies inside a scene."""

    mixture: dict[str, float]  # material -> share in per cent
    parcel: float = 0.0  # how much the mixture differs from parcel to parcel, along the axes
    small: bool = False  # whether these are the small parcels
    texture: float = 0.5  # how much texture changes the mixture, along the axes
    rough: float = 0.08  # relative variation of brightness from pixel to pixel (crowns, roofs)


# In the order of CLASSES.
# fmt: off
APPEARANCE = (
    Cover({"roofs": 40, "concrete": 14, "grass": 18, "leaves": 18, "loam": 10},
          parcel=0.5, small=True, texture=1.2, rough=0.2),
    Cover({"concrete": 45, "roofs": 35, "loam": 10, "grass": 10},
          parcel=1.0, small=True, texture=0.7, rough=0.2),
    Cover({"crop": 38, "loam": 22, "chalk": 16, "straw": 18, "grass": 6},
          parcel=1.7, texture=0.3, rough=0.05),
    Cover({"leaves": 25, "chalk": 27, "shrub": 18, "straw": 18, "loam": 12},
          parcel=0.9, small=True, texture=0.6, rough=0.12),
    Cover({"grass": 70, "crop": 12, "straw": 12, "leaves": 6},
          parcel=0.7, texture=0.4, rough=0.06),
    Cover({"crop": 27, "loam": 18, "chalk": 13, "straw": 14, "grass": 14, "leaves": 9, "roofs": 5},
          parcel=1.5, small=True),
    Cover({"grass": 22, "crop": 18, "leaves": 20, "shrub": 18, "straw": 12, "loam": 10},
          parcel=1.0, small=True, texture=0.9, rough=0.1),
    Cover({"straw": 40, "grass": 18, "leaves": 18, "shrub": 14, "chalk": 10},
          parcel=0.2, texture=0.9, rough=0.14),
    Cover({"leaves": 84, "shrub": 8, "needles": 6, "grass": 2}, texture=0.6, rough=0.13),
    Cover({"needles": 82, "shrub": 8, "leaves": 8, "grass": 2}, texture=0.6, rough=0.15),
    Cover({"needles": 45, "leaves": 45, "shrub": 8, "grass": 2}, texture=1.0, rough=0.14),
    Cover({"straw": 36, "grass": 30, "chalk": 16, "shrub": 10, "loam": 8}, texture=0.8),
    Cover({"shrub": 66, "straw": 12, "loam": 8, "reeds": 8, "grass": 6}, texture=0.6, rough=0.1),
    Cover({"shrub": 34, "grass": 20, "needles": 20, "leaves": 20, "straw": 6},
          parcel=0.3, texture=1.0, rough=0.13),
    Cover({"sand": 80, "chalk": 12, "straw": 8}, texture=0.6, rough=0.06),
    Cover({"reeds": 58, "shrub": 15, "grass": 12, "lake": 10, "straw": 5}, texture=0.9, rough=0.1),
    Cover({"reeds": 34, "silt": 24, "loam": 20, "grass": 16, "sand": 6}, texture=1.0),
    Cover({"lake": 70, "silt": 30}, texture=0.4, rough=0.05),
    Cover({"sea": 90, "silt": 10}, texture=0.3, rough=0.05),
)
# fmt: on

_NAMES = tuple(MATERIALS)
_POWER = np.array([10 ** (np.array(m.radar) / 10) for m in MATERIALS.values()])  # (E, 2)
_REFLECTANCE = np.array([m.optical for m in MATERIALS.values()]) / 100  # (E, 12)
_SIGNATURES = np.concatenate([_POWER, _REFLECTANCE], axis=1).astype(np.float32)  # (E, 14)
_AXES = np.array([m.axes for m in MATERIALS.values()], dtype=np.float32).T  # (4, E)
# A material that is not in a mixture gets a tiny share, so that the logarithm is finite.
_LOGITS = np.log([[cover.mixture.get(m, 0.05) for m in _NAMES] for cover in APPEARANCE]).astype(
    np.float32
)  # (C, E)
_PARCEL = np.array([cover.parcel for cover in APPEARANCE], dtype=np.float32)
_SMALL = np.array([cover.small for cover in APPEARANCE], dtype=np.int64)
_TEXTURE = np.array([cover.texture for cover in APPEARANCE], dtype=np.float32)
_ROUGH = np.array([cover.rough for cover in APPEARANCE], dtype=np.float32)


def render(
    noise: SceneNoise, land: Bytes, parcel: Bytes, *, difficulty: float
) -> NDArray[np.int16]:
    """The values of all bands, (scenes, 14, size, size), scaled by RADAR_SCALE and OPTICAL_SCALE.

    Args:
        noise: Random numbers of the scenes.
        land: Class of every pixel, (scenes, size, size).
        parcel: Parcel numbers, (scenes, 2, size, size).
        difficulty: Strength of variation, haze, relief and noise; 1 is the usual amount.
    """
    n, size, _ = land.shape
    kind = land.reshape(n, -1).astype(np.int64)
    signal = _mix(noise, kind, parcel, difficulty)
    signal *= 1 + np.float32(0.05 * difficulty) * _look_up(noise.normal(len(CLASSES), 14), kind)
    signal *= np.maximum(1 + _ROUGH[kind] * noise.normal(size * size), 0.3)[:, :, None]
    image = np.ascontiguousarray(signal.transpose(0, 2, 1)).reshape(n, 14, size, size)
    image = _blur(image)
    optical = _atmosphere(noise, image[:, 2:], difficulty)
    speckle = noise.gamma(_LOOKS, 2, size, size) / np.float32(_LOOKS)
    decibel = 10 * np.log10(np.maximum(image[:, :2] * speckle, 1e-4))  # at least -40 dB
    decibel += np.float32(0.7 * difficulty) * noise.normal(2, 1, 1)  # moisture, wind, calibration
    stored = np.concatenate([decibel * RADAR_SCALE, optical * OPTICAL_SCALE], axis=1)
    return np.asarray(np.rint(stored), dtype=np.int16)


def _mix(noise: SceneNoise, kind: NDArray[np.int64], parcel: Bytes, difficulty: float) -> Floats:
    """Radar power (linear, not dB) and reflectance of every pixel, (scenes, pixels, 14)."""
    n, pixels = kind.shape
    size = parcel.shape[-1]
    season = noise.normal(4) * np.array([0.0, 0.0, 0.4, 0.2], dtype=np.float32)
    drift = np.float32(difficulty) * (0.3 * noise.normal(len(CLASSES), 4) + season[:, None])
    texture = 0.7 * smooth(noise.normal(4, 9, 9), size) + 0.8 * smooth(
        noise.normal(4, 35, 35), size
    )
    texture = texture.reshape(n, 4, pixels).transpose(0, 2, 1)
    state = _look_up(drift, kind) + _TEXTURE[kind][:, :, None] * texture
    number = np.take_along_axis(parcel.reshape(n, 2, pixels), _SMALL[kind][:, None], axis=1)[:, 0]
    crops = noise.normal(256, 4)
    state += _PARCEL[kind][:, :, None] * _look_up(crops, number.astype(np.int64))
    share = np.exp(_LOGITS[kind] + state @ _AXES)
    share /= share.sum(axis=2, keepdims=True)
    return np.asarray(share @ _SIGNATURES)


def _look_up(table: Floats, kind: NDArray[np.int64]) -> Floats:
    """For every pixel the entry of its scene's table: (scenes, K, D) to (scenes, pixels, D)."""
    return table[np.arange(len(table))[:, None], kind]


def _blur(image: Floats) -> Floats:
    """Mix a little of its neighbours into each pixel, as a sensor does."""
    for _ in range(2):  # along rows, then along columns
        image = image.swapaxes(2, 3)
        padded = np.pad(image, ((0, 0), (0, 0), (0, 0), (1, 1)), mode="edge")
        image = 0.7 * image + 0.15 * (padded[..., :-2] + padded[..., 2:])
    return image


def _atmosphere(noise: SceneNoise, reflectance: Floats, difficulty: float) -> Floats:
    """Add the effects of sun and relief, of haze (strongest in blue) and of sensor noise."""
    size = reflectance.shape[-1]
    sun = np.exp(0.1 * noise.normal(1, 1, 1))
    slope = noise.normal(1, 1, 1) * 0.06 * smooth(noise.normal(1, 9, 9), size)
    light = np.maximum(sun * (1 + np.float32(difficulty) * slope), 0.2)
    veil = 0.012 * np.abs(noise.normal(1, 1, 1)) * np.exp(0.4 * smooth(noise.normal(1, 5, 5), size))
    colour = (490 / np.array(WAVELENGTHS, dtype=np.float32)) ** 1.6
    haze = np.float32(difficulty) * veil * colour[:, None, None]
    hazy = reflectance * light * (1 - 2 * haze) + haze
    grain = noise.normal(len(OPTICAL), size, size) * np.float32(difficulty)
    noisy = hazy + grain * (0.0015 + 0.015 * hazy)
    return np.asarray(np.clip(noisy, 1e-4, 1.5), dtype=np.float32)

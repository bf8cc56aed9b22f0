"""Random numbers and smooth random surfaces for generated scenes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class SceneNoise:
    """Random numbers for several scenes, with one generator for each scene.

    Scene i gets the same numbers whichever other scenes are made at the same time, so that a scene
    depends on the seed and i only.

    Args:
        seed: Seed of all scenes.
        indices: Numbers of the scenes.
        stream: Number of an independent stream; different streams give different numbers.
    """

    def __init__(self, seed: int, indices: NDArray[np.int64], *, stream: int) -> None:
        self._generators = [np.random.default_rng([seed, int(i), stream]) for i in indices]

    def normal(self, *shape: int) -> Floats:
        """Standard normal numbers, (scenes, *shape)."""
        return np.stack([g.standard_normal(shape, dtype=np.float32) for g in self._generators])

    def uniform(self, *shape: int) -> Floats:
        """Numbers uniform on [0, 1), (scenes, *shape)."""
        return np.stack([g.random(shape, dtype=np.float32) for g in self._generators])

    def gamma(self, alpha: float, *shape: int) -> Floats:
        """Gamma-distributed numbers with shape parameter and mean `alpha`, (scenes, *shape)."""
        return np.stack(
            [g.standard_gamma(alpha, shape, dtype=np.float32) for g in self._generators]
        )


def smooth(knots: Floats, size: int) -> Floats:
    """Smooth random surfaces (..., size, size) of unit variance.

    They are cubic B-splines whose coefficients `knots`, (..., k, k), are independent standard
    normal numbers; a larger k gives a finer surface.
    """
    weights, _ = _spline(knots.shape[-1], size)
    return np.asarray(weights @ knots @ weights.T, dtype=np.float32)


def smooth_by_sums(knots: Floats, size: int) -> Floats:
    """The surfaces of `smooth` up to rounding, for any size and however busy the cores are.

    Only the four knots that a pixel depends on are added up. From some 130 pixels on, the library
    behind matrix products shares even small ones among threads, which wait for each other: hundreds
    of times as long, if other processes use the cores. `smooth` stays as it is because the scenes
    that are made with it must keep their bits.
    """
    weights, first = _spline(knots.shape[-1], size)
    taps = first[:, None] + np.arange(4)
    own = np.take_along_axis(weights, taps, axis=1)
    # Along rows first, while there are few of them: whole rows are copied faster than columns.
    k, before = knots.shape[-1], knots.shape[:-2]
    wide = np.zeros((*before, k, size), dtype=np.float32)
    surface = np.zeros((*before, size, size), dtype=np.float32)
    for j in range(4):
        wide += own[:, j] * knots[..., taps[:, j]]
    for j in range(4):
        surface += own[:, j, None] * wide[..., taps[:, j], :]
    return surface


def _spline(k: int, size: int) -> tuple[Floats, NDArray[np.int64]]:
    """The weight of each of `k` knots at each of `size` pixels, and the first that has any."""
    position = (np.arange(size) + 0.5) / size * (k - 3) + 1
    distance = np.abs(position[:, None] - np.arange(k))
    near, far = np.minimum(distance, 1), np.clip(distance, 1, 2)
    weights = np.where(distance < 1, 2 / 3 - near**2 + near**3 / 2, (2 - far) ** 3 / 6)
    weights = (weights / np.linalg.norm(weights, axis=1, keepdims=True)).astype(np.float32)
    return weights, position.astype(np.int64) - 1


def pixel_centres(size: int) -> tuple[Floats, Floats]:
    """Row and column coordinates of the pixel centres in a unit square, each (size, size)."""
    centres = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
    row = np.repeat(centres[:, None], size, axis=1)
    return row, np.ascontiguousarray(row.T)

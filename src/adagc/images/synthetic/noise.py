"""Random numbers and smooth random surfaces for invented scenes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class SceneNoise:
    """Random numbers for a chunk of scenes, one generator each.

    Scene i sees the same numbers whatever other scenes are built with it, which is what makes a
    scene a function of (seed, i) alone.
    """

    def __init__(self, seed: int, indices: NDArray[np.int64], *, stream: int) -> None:
        self._generators = [np.random.default_rng([seed, int(i), stream]) for i in indices]

    def normal(self, *shape: int) -> Floats:
        """Standard normal, (scenes, *shape)."""
        return np.stack([g.standard_normal(shape, dtype=np.float32) for g in self._generators])

    def uniform(self, *shape: int) -> Floats:
        """Uniform on [0, 1), (scenes, *shape)."""
        return np.stack([g.random(shape, dtype=np.float32) for g in self._generators])

    def gamma(self, alpha: float, *shape: int) -> Floats:
        """Gamma of mean `alpha`, (scenes, *shape)."""
        return np.stack(
            [g.standard_gamma(alpha, shape, dtype=np.float32) for g in self._generators]
        )


def smooth(knots: Floats, size: int) -> Floats:
    """Cubic B-spline surface (..., size, size) over white noise (..., k, k), unit variance."""
    k = knots.shape[-1]
    position = (np.arange(size) + 0.5) / size * (k - 3) + 1
    distance = np.abs(position[:, None] - np.arange(k))
    near, far = np.minimum(distance, 1), np.clip(distance, 1, 2)
    weights = np.where(distance < 1, 2 / 3 - near**2 + near**3 / 2, (2 - far) ** 3 / 6)
    weights = (weights / np.linalg.norm(weights, axis=1, keepdims=True)).astype(np.float32)
    return np.asarray(weights @ knots @ weights.T, dtype=np.float32)


def pixel_centres(size: int) -> tuple[Floats, Floats]:
    """Rows and columns of the pixel centres of a unit square, each (size, size)."""
    centres = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
    row = np.repeat(centres[:, None], size, axis=1)
    return row, np.ascontiguousarray(row.T)

"""The plan of mosaics: how many patches, the cell of each, its class, and where it is cut.

The cells are those of a Voronoi diagram whose sites are random and whose weights make some cells
larger than others. Borders are irregular because each pixel asks for the nearest site not at its
own place but at one that smooth random surfaces of three scales have displaced: bays and tongues,
teeth, and a ragged edge of a few pixels. Everything is vectorised over scenes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adagc.images.synthetic.noise import Bytes, SceneNoise, pixel_centres, smooth_by_sums

# Share of the mosaics with 1, 2, ... 6 patches. Some patches are too small to be labels, so that
# the mean of 3.26 patches gives about 3 labels.
PATCHES = (0.12, 0.22, 0.26, 0.20, 0.12, 0.08)
MOST = len(PATCHES)
TURNS = 8  # ways to put a square on a square: four quarter turns, each also mirrored

# Of each surface that displaces pixels: knots per side, and its standard deviation as a share of
# the side of the scene.
_WARPS = ((6, 0.12), (12, 0.05), (34, 0.02))
_SPREAD = 0.1  # largest difference of the weights of two cells, in squared sides of the scene


def divide(noise: SceneNoise, size: int, *, most: int = MOST) -> Bytes:
    """The number of the patch at every pixel, (scenes, size, size), 0 to at most 5.

    Args:
        noise: Random numbers of the scenes.
        size: Height and width of a scene in pixels; more pixels show the same borders more finely.
        most: Largest number of patches in a scene; scenes that would have more have this number.
    """
    draw = noise.uniform(1)[:, 0]
    count = np.minimum(1 + np.searchsorted(np.cumsum(PATCHES)[:-1], draw, side="right"), most)
    sites, weights = noise.uniform(MOST, 2), _SPREAD * noise.uniform(MOST)
    # The squared distance to a site less its weight is smallest where this is largest:
    #   pixel . site + offset
    offsets = (weights - (sites**2).sum(axis=2)) / 2
    place = np.stack(pixel_centres(size))
    for knots, deviation in _WARPS:
        place = place + deviation * smooth_by_sums(noise.normal(2, knots, knots), size)
    cells = np.zeros((len(count), size, size), dtype=np.uint8)
    strongest = np.full(cells.shape, -np.inf, dtype=np.float32)
    for patch in range(int(count.max())):
        y, x = sites[:, patch].T[:, :, None, None]
        pull = place[:, 0] * y + place[:, 1] * x + offsets[:, patch, None, None]
        stronger = (pull > strongest) & (count > patch)[:, None, None]
        cells[stronger] = patch
        strongest = np.where(stronger, pull, strongest)
    return cells


def choose_classes(noise: SceneNoise, classes: int) -> NDArray[np.int64]:
    """A different class for each patch, all equally likely: (scenes, 6), or fewer if there are."""
    return np.argsort(noise.uniform(classes), axis=1, kind="stable")[:, :MOST]


def cut(noise: SceneNoise, cells: Bytes, side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the source image of each patch is laid, and how it is turned.

    A source lies such that it covers the whole cell, if it is large enough, and rather with its
    middle than with its edge: what the class is named after is seldom at the edge of an image.

    Args:
        noise: Random numbers of the scenes.
        cells: The patch at every pixel, from `divide`.
        side: Height and width of the source images in pixels.

    Returns:
        Row and column of the scene at which the source begins, (scenes, 6, 2), negative if that is
        outside; and which of the eight turns it has, (scenes, 6).
    """
    n, size = cells.shape[:2]
    middle = noise.uniform(2, MOST, 2).astype(np.float64).mean(axis=1)  # more often near 0.5
    corner = np.zeros((n, MOST, 2), dtype=np.int64)
    for patch in range(MOST):
        own = cells == patch
        for axis in (0, 1):
            covered = own.any(axis=2 - axis)  # (scenes, size): rows, then columns, of the cell
            first = covered.argmax(axis=1)
            extent = size - covered[:, ::-1].argmax(axis=1) - first
            spare = side - extent  # negative: the source is too small and will be mirrored
            shift = np.floor((spare + 1) * middle[:, patch, axis]).astype(np.int64)
            corner[:, patch, axis] = first - np.where(spare < 0, spare // 2, shift)
    turn = (TURNS * noise.uniform(MOST).astype(np.float64)).astype(np.int64)
    return corner, turn

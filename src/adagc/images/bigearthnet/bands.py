"""The bands of a BigEarthNet patch: their order, their resolution, and named choices of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError
from adagc.suggest import hint

SIDE: Final = 120  # pixels of 10 m along each side of a patch of 1200 m
RADAR: Final = ("VV", "VH")  # Sentinel-1, decibels as 32-bit floats
OPTICAL: Final = (  # Sentinel-2 L2A, reflectance in ten-thousandths as 16-bit integers
    *("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12"),
)
BANDS: Final = RADAR + OPTICAL  # the order of the paper
SIDES: Final = dict.fromkeys(BANDS, SIDE) | {
    **dict.fromkeys(("B05", "B06", "B07", "B8A", "B11", "B12"), 60),  # of 20 m
    **dict.fromkeys(("B01", "B09"), 20),  # of 60 m
}
CHOICES: Final = {
    "all": BANDS,
    "s1": RADAR,
    "s2": OPTICAL,
    "rgb": ("B04", "B03", "B02"),
    "10m": ("B02", "B03", "B04", "B08"),
}


def choose_bands(wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The bands that `--bands` asks for, in the order asked for; all of them by default.

    Args:
        wanted: Names of bands and of `CHOICES`, in small or capital letters.

    Raises:
        UsageError: A name is unknown, or a band is named twice.
    """
    named: list[str] = []
    for word in wanted or ("all",):
        if word.lower() in CHOICES:
            named += CHOICES[word.lower()]
        elif word.upper() in BANDS:
            named.append(word.upper())
        else:
            near = hint(word.upper(), BANDS) or f"; choose from {', '.join((*CHOICES, *BANDS))}"
            raise UsageError(f"--bands: there is no band {word!r}{near}")
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--bands names {twice} twice: name every band once")
    return tuple(named)


def depth_of(bands: Sequence[str]) -> np.dtype[np.generic]:
    """The dtype that holds the values of all these bands exactly."""
    return np.dtype(np.float32 if set(bands) & {*RADAR} else np.uint16)


def stored(band: str) -> np.dtype[np.generic]:
    """The dtype of this band in files."""
    return depth_of((band,))


def block(bands: Sequence[str], count: int) -> dict[str, NDArray[np.generic]]:
    """Empty arrays for the values of these bands as files have them: (count, side, side) each."""
    return {band: np.empty((count, SIDES[band], SIDES[band]), dtype=stored(band)) for band in bands}

"""The moments of every band of every patch, in a file of 272 bytes per patch.

They are exact: sums of optical values are integers, as `adagc.images.moments` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.images.bigearthnet.bands import OPTICAL, RADAR, SIDE
from adagc.images.moments import KEPT, Moments, tally_images

PIXELS: Final = SIDE * SIDE
_RADAR = np.dtype(
    [("count", "<u2"), ("mean", "<f8"), ("spread", "<f8"), ("low", "<f4"), ("high", "<f4"),
     ("infinite", "<u2")]
)  # fmt: skip
_OPTICAL = np.dtype(
    [("sum", "<u4"), ("squares", "<u8"), ("low", "<u2"), ("high", "<u2"), ("top", "<u2")]
)
# In the order of `tally`; None is a number that is the same for every patch.
_RADAR_FIELDS = ("count", "mean", "spread", "low", "high", None, "infinite")
_OPTICAL_FIELDS = (None, "sum", "squares", "low", "high", "top", None)
RECORD: Final = np.dtype([("radar", _RADAR, len(RADAR)), ("optical", _OPTICAL, len(OPTICAL))])
_ROWS = 2**14  # patches whose numbers are combined at once


def measure_patches(
    count: int, radar: NDArray[np.float32] | None, optical: NDArray[np.uint16] | None
) -> NDArray[np.void]:
    """The record of each of these patches.

    Args:
        count: Number of patches.
        radar: Their values, (count, 2, 120, 120); None if there are none.
        optical: The same, (count, 12, 120, 120).
    """
    records = np.zeros(count, dtype=RECORD)
    for part, values, fields in (
        ("radar", radar, _RADAR_FIELDS),
        ("optical", optical, _OPTICAL_FIELDS),
    ):
        if values is None:
            continue
        table = tally_images(values)
        for place, field in enumerate(fields):
            if field is not None:
                records[part][field] = table[..., place]
    return records


def combined(records: NDArray[np.void], rows: NDArray[np.int64], bands: Sequence[str]) -> Moments:
    """The moments of these bands over all these rows of the table of records."""
    moments = Moments(len(bands))
    for part, names, fields, dtype in (
        ("radar", RADAR, _RADAR_FIELDS, np.float64),
        ("optical", OPTICAL, _OPTICAL_FIELDS, np.int64),
    ):
        places = [place for place, band in enumerate(bands) if band in names]
        own = [names.index(bands[place]) for place in places]
        for start in range(0, len(rows) if own else 0, _ROWS):
            taken = records[part][rows[start : start + _ROWS]][:, own]
            table = np.zeros((*taken.shape, KEPT), dtype=dtype)
            for place, field in enumerate(fields):
                if field is not None:
                    table[..., place] = taken[field]
                elif place == 0:
                    table[..., 0] = PIXELS
            moments.take(table, PIXELS, places)
    return moments


def flaws(
    records: NDArray[np.void], rows: NDArray[np.int64], bands: Sequence[str]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of these rows have missing and infinite values; only radar can have either."""
    own = [RADAR.index(band) for band in bands if band in RADAR]
    missing, infinite = np.zeros((2, len(rows)), dtype=np.bool_)
    if own:
        radar: Any = records["radar"]
        unbounded = radar["infinite"][rows][:, own]
        missing |= (radar["count"][rows][:, own] + unbounded < PIXELS).any(axis=1)
        infinite |= (unbounded > 0).any(axis=1)
    return missing, infinite


__all__ = ["PIXELS", "RECORD", "combined", "flaws", "measure_patches"]

"""Patches of BigEarthNet read one file after the other, as plainly as possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tifffile
import torch

ORDER = ["VV", "VH", "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11",
         "B12"]  # fmt: skip


def slow_patch(root: Path, name: str, radar: str, how: str = "nearest") -> np.ndarray:
    """All 14 bands of a patch of a generated copy, (14, 120, 120) in 64 bits."""
    image = np.zeros((14, 120, 120))
    for place, band in enumerate(ORDER):
        own = radar if band in ("VV", "VH") else name
        (path,) = root.glob(f"BigEarthNet*/**/{own}_{band}.tif")
        values = tifffile.imread(path)
        if len(values) == 120:
            image[place] = values
        elif how == "nearest":
            times = 120 // len(values)
            for row in range(120):
                for column in range(120):
                    image[place, row, column] = values[row // times, column // times]
        else:
            wide = torch.nn.functional.interpolate(
                torch.from_numpy(values.astype(np.float64))[None, None],
                size=(120, 120),
                mode="bicubic",
                align_corners=False,
            )
            image[place] = wide[0, 0].numpy().round().clip(0, 65535)
    return image


def slow_areas(codes: np.ndarray, classes: Mapping[int, int], count: int) -> np.ndarray:
    """The share of each class among the labelled pixels of one map, pixel by pixel."""
    pixels = np.zeros(count)
    for code in codes.ravel().tolist():
        if code in classes:
            pixels[classes[code]] += 1
    return pixels / max(pixels.sum(), 1)

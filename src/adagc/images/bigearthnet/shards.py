"""Patches in memory-mapped arrays of a fixed size: radar as floats, optical as integers.

Patch i is row i % SHARD of the files number i // SHARD. All bands are enlarged already, so that
reading a patch is copying it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.bigearthnet.bands import OPTICAL, RADAR, SIDE
from adagc.images.bigearthnet.resample import Resample
from adagc.images.bigearthnet.sources import Source

SHARD: Final = 4096  # patches of a shard: 1.4 GB of optical and 0.5 GB of radar bands
PARTS: Final[dict[str, tuple[tuple[str, ...], np.dtype[Any]]]] = {
    "s1": (RADAR, np.dtype("<f4")),
    "s2": (OPTICAL, np.dtype("<u2")),
}
PATCH_BYTES: Final = sum(len(b) * SIDE * SIDE * dtype.itemsize for b, dtype in PARTS.values())


def shard_file(folder: Path, part: str, number: int) -> Path:
    """The file of a shard; `part` is a key of PARTS."""
    return folder / f"{part}-{number:05d}.npy"


def shard_shape(part: str, number: int, count: int) -> tuple[int, int, int, int]:
    """The shape of the array in a shard of a store of `count` patches."""
    return min(SHARD, count - number * SHARD), len(PARTS[part][0]), SIDE, SIDE


def allocate(folder: Path, count: int, parts: Sequence[str]) -> None:
    """Make all shards that are not there yet, with their disk space reserved."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(-(-count // SHARD)):
        for part in parts:
            path, shape = shard_file(folder, part, number), shard_shape(part, number, count)
            if path.exists():
                continue
            temporary = path.with_suffix(".part")
            np.lib.format.open_memmap(temporary, mode="w+", dtype=PARTS[part][1], shape=shape)
            if hasattr(os, "posix_fallocate"):
                # Writing to a memory map on a full disk would kill the process without a word.
                with temporary.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, temporary.stat().st_size)
            temporary.replace(path)


class ShardSource(Source):
    """Patches in shards.

    Args:
        folder: Folder of the shards.
        rows: The row of the store of each patch.
        count: Number of rows of the store.
    """

    form = "memory-mapped shards"

    def __init__(self, folder: Path, rows: NDArray[np.int64], count: int) -> None:
        self._folder, self._rows, self._count = folder, rows, count
        self._mapped: dict[tuple[str, int], NDArray[Any]] = {}

    def chosen(self, rows: NDArray[np.int64]) -> ShardSource:
        """See `Source.chosen`."""
        return ShardSource(self._folder, self._rows[rows], self._count)

    def fill(
        self,
        rows: NDArray[np.int64],
        bands: Sequence[str],
        resample: Resample,
        out: NDArray[Any],
    ) -> None:
        """See `Source.fill`; the bands are enlarged as the store was made."""
        numbers, places = (found.tolist() for found in np.divmod(self._rows[rows], SHARD))
        runs = [
            (to, {number: self.shard(part, number)[:, taken] for number in set(numbers)})
            for part, (stored, _) in PARTS.items()
            for to, taken in runs_of(bands, stored)
        ]
        # Each patch lies in one piece: a copy that converts takes no longer than a plain copy of
        # the converted values would.
        for image, number, place in zip(out, numbers, places, strict=True):
            for to, own in runs:
                image[to] = own[number][place]

    def shard(self, part: str, number: int) -> NDArray[Any]:
        """The array of a shard, mapped when it is first asked for."""
        mapped = self._mapped.get((part, number))
        if mapped is None:
            path = shard_file(self._folder, part, number)
            shape = shard_shape(part, number, self._count)
            try:
                # As a plain array, because indexing the class np.memmap is slower.
                mapped = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
            except FileNotFoundError:
                which = "Sentinel-1" if part == "s1" else "Sentinel-2"
                raise DataError(f"{path} is missing, a part of the {which} bands") from None
            except (OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read ({error}): copy it again") from None
            if mapped.shape != shape or mapped.dtype != PARTS[part][1]:
                raise DataError(f"{path} holds {mapped.shape}, not {shape}: copy it again")
            self._mapped[part, number] = mapped
        return mapped

    def __getstate__(self) -> dict[str, Any]:
        # A worker process maps the files again, so that they need not be sent to it.
        return {**self.__dict__, "_mapped": {}}


def runs_of(wanted: Sequence[str], stored: Sequence[str]) -> list[tuple[slice, slice]]:
    """Slices (of `wanted`, of `stored`) that together copy all wanted bands which are stored.

    >>> runs_of(["B01", "VV", "VH"], ["VV", "VH"])
    [(slice(1, 3, None), slice(0, 2, None))]
    """
    runs: list[tuple[slice, slice]] = []
    for place, band in enumerate(wanted):
        if band not in stored:
            continue
        at = stored.index(band)
        if runs and runs[-1][0].stop == place and runs[-1][1].stop == at:
            runs[-1] = (slice(runs[-1][0].start, place + 1), slice(runs[-1][1].start, at + 1))
        else:
            runs.append((slice(place, place + 1), slice(at, at + 1)))
    return runs

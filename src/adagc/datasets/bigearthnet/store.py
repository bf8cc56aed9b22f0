"""A prepared store: its files, and what they say.

plan.json            what is being prepared, written first
store.json           what was prepared, written last: without it the store is not finished
index.safetensors    patches, their rows and checksums, as arrays
moments.npy          the moments of every band of every patch
areas.npy            the share of every class in every patch, if there are reference maps
s1-00000.npy ...     the shards of a memmap store; or BigEarthNet-LMDB/ of an LMDB store
metadata.parquet     as published, for other programs
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.layout import PLAN, STORE
from adagc.datasets.bigearthnet.patches import Patches, read_arrays
from adagc.errors import DataError
from adagc.images.bigearthnet.lmdb import LmdbSource
from adagc.images.bigearthnet.resample import Resample
from adagc.images.bigearthnet.shards import ShardSource
from adagc.images.bigearthnet.sources import Source

StoreForm = Literal["memmap", "lmdb"]
FORMAT: Final = 1
_KIND: Final = "adagc bigearthnet store"
DATABASE: Final = "BigEarthNet-LMDB"  # folder of the LMDB store in a store of this form
INDEX, MOMENTS, AREAS = "index.safetensors", "moments.npy", "areas.npy"


@dataclass(frozen=True)
class Plan:
    """What is being prepared; two calls with the same plan work on the same store."""

    form: StoreForm
    resample: Resample  # of a memmap store as stored, of an LMDB store when it is read
    version: int  # of BigEarthNet
    patches: int  # of the source, whether they can be read or not
    names: str  # digest of their names
    radar: bool  # whether there are Sentinel-1 patches
    optical: bool  # whether there are Sentinel-2 patches
    cloudy: bool  # whether patches with snow, clouds or shadow are among them

    def to_dict(self) -> dict[str, Any]:
        """For plan.json."""
        return {"kind": _KIND, "format": FORMAT, **asdict(self)}


@dataclass(frozen=True)
class Store:
    """A finished store, opened."""

    folder: Path
    plan: Plan
    patches: Patches  # those that are in it
    rows: NDArray[np.int64]  # the row of each in its arrays
    checksums: NDArray[np.uint32]  # (N, 2), of the radar and the optical values of each
    source: Source

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"BigEarthNet version {self.plan.version}, prepared as {self.source.form}"

    @property
    def records(self) -> NDArray[np.void]:
        """The moments of every row, mapped."""
        return mapped(self.folder / MOMENTS)

    @property
    def areas(self) -> NDArray[np.float32] | None:
        """The share of every class in every patch; None if no maps were there."""
        path = self.folder / AREAS
        return np.array(mapped(path)[self.rows]) if path.is_file() else None


def read_plan(folder: Path) -> Plan | None:
    """The plan of a store that is being prepared or was; None if there is none.

    A DataError if it was made by a newer version.
    """
    path = folder / PLAN
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["kind"] != _KIND:
            return None
        if found["format"] > FORMAT:
            raise DataError(
                f"{folder} was prepared by a newer version of adagc (format {found['format']}):"
                " update adagc"
            )
        return Plan(**{name: found[name] for name in Plan.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of store.json; DataError if the store is not finished."""
    try:
        found: dict[str, Any] = json.loads((folder / STORE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} is not finished: give the same adagc prepare again, which goes on where it"
            " stopped"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / STORE} cannot be read ({error}): copy it again") from None
    return found


def open_store(folder: Path) -> Store:
    """Open a finished store; DataError if it is not finished or damaged."""
    plan = read_plan(folder)
    if plan is None:
        raise DataError(f"{folder / PLAN} is missing or damaged: copy the store again")
    read_summary(folder)
    patches, more = read_arrays(folder / INDEX)
    try:
        rows, checksums = more["rows"].astype(np.int64), more["checksums"]
    except KeyError as error:
        raise DataError(f"{folder / INDEX} lacks {error}: prepare the store again") from None
    source: Source
    if plan.form == "lmdb":
        source = LmdbSource(folder / DATABASE, patches.names, patches.radar)
    else:
        source = ShardSource(folder, rows, plan.patches)
    return Store(folder, plan, patches, rows, checksums, source)


def mapped(path: Path) -> NDArray[Any]:
    """A .npy file of a store, memory-mapped; DataError if it is missing or damaged."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): prepare the store again") from None
    return array.view(np.ndarray)

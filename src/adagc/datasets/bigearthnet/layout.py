"""Which form of BigEarthNet a folder holds, told by what is in it, not by names of folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal

Form = Literal["tree", "lmdb", "store"]

METADATA: Final = "metadata.parquet"
CLOUDY: Final = "metadata_for_patches_with_snow_cloud_or_shadow.parquet"
PLAN, STORE = "plan.json", "store.json"  # of a store of ours: begun, finished
TREE: Final = (
    "BigEarthNet-S2/<tile>/<patch>/<patch>_B02.tif, BigEarthNet-S1/<scene>/<patch>/<patch>_VV.tif,"
    " Reference_Maps/<tile>/<patch>/<patch>_reference_map.tif and metadata.parquet"
)
_TILE = re.compile(r"S2[A-D]_MSIL2A_\d{8}T\d{6}_N\d{4}_R\d{3}_T\w{5}")
_SCENE = re.compile(r"S1[A-D]_IW_GRDH_1SDV_\d{8}T\d{6}")
_OPTICAL_1 = re.compile(r"S2[A-D]_MSIL2A_\d{8}T\d{5,6}_\d+_\d+")
_RADAR_1 = re.compile(r"S1[A-D]_IW_GRDH_1SDV_\d{8}T\d{6}_\w{5}_\d+_\d+")
_MOST = 64  # folders of a copy; one with more is a folder of other images, and may be very large
_LOOKED_AT = 8  # entries of a folder that decide what it is


@dataclass(frozen=True)
class Layout:
    """Where the parts of a copy of BigEarthNet are; None for what is not there."""

    form: Form
    root: Path
    version: int = 2
    optical: Path | None = None  # folder of the Sentinel-2 patches
    radar: Path | None = None  # folder of the Sentinel-1 patches
    maps: Path | None = None  # folder of the reference maps
    lmdb: Path | None = None  # folder of an LMDB store
    metadata: Path | None = None  # labels and splits, version 2
    cloudy: Path | None = None  # the same of patches with snow, clouds or shadow

    @property
    def title(self) -> str:
        """What this is, in words."""
        if self.form == "store":
            return "BigEarthNet, prepared by adagc"
        kind = "LMDB with safetensors" if self.form == "lmdb" else "GeoTIFF files"
        return f"BigEarthNet version {self.version} as {kind}"


def find_layout(root: Path) -> Layout | None:
    """The copy of BigEarthNet at a path, which may also be one of its parts; None if it is none."""
    if not root.is_dir():
        return None
    if (root / STORE).is_file() or (root / PLAN).is_file():
        return Layout("store", root) if _is_ours(root) else None
    databases = [
        place for place in (root, *islice(_folders(root), _MOST)) if (place / "data.mdb").is_file()
    ]
    if databases:
        own = Layout("lmdb", root, lmdb=databases[0])
        return _with_metadata(own, root, databases[0].parent) if _has_patches(own) else None
    kind = _kind(root)
    if kind is not None:
        return find_layout(root.resolve().parent) if kind[0] != "" else None
    found: dict[str, tuple[int, Path]] = {}
    for folder in islice(_folders(root), _MOST):
        inside = _kind(folder)
        if inside is not None:
            found.setdefault(inside[0], (inside[1], folder))
    if not found:
        return None
    places = {part: folder for part, (_, folder) in found.items()}
    version = max(number for number, _ in found.values())
    layout = Layout("tree", root, version, **places)
    return _with_metadata(layout, root)


def _with_metadata(layout: Layout, *places: Path) -> Layout:
    def first(name: str) -> Path | None:
        return next((place / name for place in places if (place / name).is_file()), None)

    return replace(layout, metadata=first(METADATA), cloudy=first(CLOUDY))


def _is_ours(root: Path) -> bool:
    from adagc.datasets.bigearthnet.store import read_plan

    return read_plan(root) is not None


def _has_patches(layout: Layout) -> bool:
    """Whether an LMDB store is one of BigEarthNet's, as far as that can be told without opening it.

    Other data sets come in LMDB too. Its metadata says so, or its first key does.
    """
    from adagc.errors import AdagcError
    from adagc.images.bigearthnet.lmdb import database

    assert layout.lmdb is not None
    if _with_metadata(layout, layout.root, layout.lmdb.parent).metadata is not None:
        return True
    try:
        return all(_is_patch(key) for key in islice(database(layout.lmdb).keys(), _LOOKED_AT))
    except (AdagcError, UnicodeDecodeError):
        return False


def _is_patch(name: str) -> bool:
    optical = _OPTICAL_1.fullmatch(name) or _TILE.fullmatch(
        name.rpartition("_")[0].rpartition("_")[0]
    )
    return bool(optical or _RADAR_1.fullmatch(name))


def _kind(folder: Path) -> tuple[str, int] | None:
    """The part of a `Layout` that a folder is, and the version; None if it is none."""
    for inside in islice(_folders(folder), _LOOKED_AT):
        name = inside.name
        if _OPTICAL_1.fullmatch(name):
            return "optical", 1
        if _RADAR_1.fullmatch(name):
            return "radar", 1
        if _SCENE.fullmatch(name):
            return "radar", 2
        if _TILE.fullmatch(name):
            for patch in islice(_folders(inside), _LOOKED_AT):
                if (patch / f"{patch.name}_reference_map.tif").is_file():
                    return "maps", 2
                return "optical", 2
            return "optical", 2
    return None


def _folders(folder: Path) -> Iterator[Path]:
    """The folders in a folder, in any order; few are looked at where there are very many."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield Path(entry.path)
    except OSError:
        return

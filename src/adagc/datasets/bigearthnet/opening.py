"""Open BigEarthNet in any form as a data set that can be trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.layout import TREE, Layout, find_layout
from adagc.datasets.bigearthnet.maps import areas_of, counts_file
from adagc.datasets.bigearthnet.metadata import read_metadata
from adagc.datasets.bigearthnet.nomenclature import CLASSES
from adagc.datasets.bigearthnet.patches import CLOUDY, Patches
from adagc.datasets.bigearthnet.splits import splits_by_place, splits_of
from adagc.datasets.bigearthnet.store import Store, open_store
from adagc.datasets.collection import Collection
from adagc.datasets.dividing import SplitRule
from adagc.errors import DataError, UsageError
from adagc.images.bigearthnet.bands import OPTICAL, RADAR, choose_bands
from adagc.images.bigearthnet.lmdb import LmdbSource, database
from adagc.images.bigearthnet.resample import DEFAULT, Resample
from adagc.images.bigearthnet.scenes import PatchScenes
from adagc.images.bigearthnet.sources import Source, TreeSource
from adagc.images.scan import require_folder

HALVES: Final = {
    "optical": "the Sentinel-2 half (BigEarthNet-S2)",
    "radar": "the Sentinel-1 half (BigEarthNet-S1)",
}
_NO_MAPS: Final = "There are no reference maps, so that no dominant labels can be simulated."


@dataclass(frozen=True)
class Copy:
    """A published copy, opened: which of its patches are there, and where their pixels are."""

    layout: Layout
    patches: Patches  # those that the metadata names and that are there
    source: Source
    halves: tuple[str, ...]  # keys of HALVES that are there
    absent: int  # patches that the metadata names and of which a half that is there lacks them
    alone: dict[str, str]  # patches of these of which the other half is there -> what is missing

    @property
    def notes(self) -> list[str]:
        """What is missing, a sentence each."""
        lacking = [f"{HALVES[half]} is missing" for half in HALVES if half not in self.halves]
        if self.absent:
            total = len(self.patches) + self.absent
            one = f", {len(self.alone):,} of them in one half only" if self.alone else ""
            lacking.append(
                f"{self.absent:,} of {total:,} patches of the metadata are not there{one}"
            )
        return lacking


def require_layout(root: Path) -> Layout:
    """The copy of BigEarthNet at a path; DataError that shows what was expected."""
    layout = find_layout(root)
    if layout is None:
        require_folder(root)
        raise DataError(
            f"{root}: no copy of BigEarthNet; expected {TREE}, an LMDB store (data.mdb), or what"
            " adagc prepare has written"
        )
    return layout


def open_copy(layout: Layout, *, cloudy: bool = False) -> Copy:
    """Open a published copy, a tree of GeoTIFF files or an LMDB store.

    Args:
        layout: Where its parts are.
        cloudy: Take also patches with snow, clouds or shadow.
    """
    patches = read_metadata(layout, cloudy=cloudy)
    if layout.form == "lmdb":
        assert layout.lmdb is not None
        there = set(database(layout.lmdb).keys())
    else:
        there = _in_folders(layout, patches)
    optical = np.fromiter((name in there for name in patches.names), np.bool_, len(patches))
    radar = np.fromiter((name in there for name in patches.radar), np.bool_, len(patches))
    halves = tuple(half for half, found in (("optical", optical), ("radar", radar)) if found.any())
    if not halves:
        raise DataError(
            f"{layout.root}: none of the {len(patches):,} patches of its metadata is there; are"
            " the images of this version?"
        )
    kept = np.ones(len(patches), dtype=np.bool_)
    alone: dict[str, str] = {}
    for half, found, other in (("optical", optical, radar), ("radar", radar, optical)):
        if half in halves:
            kept &= found
            for row in np.flatnonzero(other & ~found).tolist():
                alone[patches.names[row]] = _absent(half, patches, row)
    rows = np.flatnonzero(kept).astype(np.int64)
    chosen = patches.take(rows)
    return Copy(layout, chosen, _source(layout, chosen), halves, len(patches) - len(rows), alone)


def _absent(half: str, patches: Patches, row: int) -> str:
    """Which patch of a half is not there, in words."""
    which = "Sentinel-2" if half == "optical" else "Sentinel-1"
    name = patches.names[row] if half == "optical" else patches.radar[row]
    return f"its {which} patch is not there{f': {name}' if name else ''}"


def _source(layout: Layout, patches: Patches) -> Source:
    if layout.lmdb is not None:
        return LmdbSource(layout.lmdb, patches.names, patches.radar)
    return TreeSource(
        layout.optical,
        layout.radar,
        [optical_place(name, layout.version) for name in patches.names],
        [radar_place(name, layout.version) for name in patches.radar],
    )


def optical_place(name: str, version: int) -> str:
    """The folder of an optical patch, or of its map, below the folder of all of them."""
    return name if version == 1 else f"{name.rsplit('_', 2)[0]}/{name}"


def radar_place(name: str, version: int) -> str:
    """The folder of a radar patch below the folder of all of them."""
    return name if version == 1 or not name else f"{name.rsplit('_', 3)[0]}/{name}"


def _in_folders(layout: Layout, patches: Patches) -> set[str]:
    """The names of all patches that have a folder; files in them are looked at when read."""
    there: set[str] = set()
    for top, names, place_of in (
        (layout.optical, patches.names, optical_place),
        (layout.radar, patches.radar, radar_place),
    ):
        if top is None:
            continue
        above = {place_of(name, layout.version).rpartition("/")[0] for name in names}
        for folder in above:
            try:
                with os.scandir(top / folder) as entries:
                    there.update(entry.name for entry in entries)
            except FileNotFoundError:
                continue
    return there


def bigearthnet_collection(
    root: Path,
    *,
    bands: Sequence[str] | None = None,
    split: Path | None = None,
    seed: int = 0,
    split_by_place: str | None = None,
    cloudy: bool = False,
    resample: Resample | None = None,
    count_maps: int = 0,
) -> Collection:
    """Open BigEarthNet with its 19 classes and, of version 2, its published splits.

    Args:
        root: Folder with the published GeoTIFF files, an LMDB store of reBEN's converter, or what
            `adagc prepare` has written.
        bands: Names of the bands to use, in this order: VV VH B01 ... B12, or all, s1, s2, rgb,
            10m. By default all 14 in the order of the paper.
        split: CSV file with the columns `image,split`, to be used in place of the published splits.
        seed: Seed of the split of version 1, if train.csv, val.csv and test.csv are not beside it,
            and of one by place.
        split_by_place: "tile", or the side of blocks in metres: patches in one block are in one
            part, instead of the published splits. Version 2 tells tiles in all forms, places only
            GeoTIFF files.
        cloudy: Use also patches with snow, clouds or shadow.
        resample: How bands of 20 and 60 m are enlarged to 120 pixels per side: nearest (the
            default), or bicubic. A memmap store has it decided.
        count_maps: Number of threads that count the pixels of reference maps, if that was not done
            before, so that areas of classes are known; 0 leaves it undone.
    """
    return _opened(
        Path(root), choose_bands(bands), split, seed, split_by_place, cloudy, resample, count_maps
    )


def open_whatever_is_there(root: Path, *, cloudy: bool = False, count_maps: int = 0) -> Collection:
    """Open a copy with all bands, or with those of the only half that is there.

    For those who look at it, or need its labels and no pixels.

    Args:
        root: See `bigearthnet_collection`.
        cloudy: The same.
        count_maps: The same.
    """
    return _opened(root, None, None, 0, None, cloudy, None, count_maps)


def _opened(
    root: Path,
    bands: tuple[str, ...] | None,
    split: Path | None,
    seed: int,
    place: str | None,
    cloudy: bool,
    resample: Resample | None,
    count_maps: int,
) -> Collection:
    """See `bigearthnet_collection`; without `bands`, those of the halves that are there."""
    rule = SplitRule(split, seed, place=place)
    layout = require_layout(root)
    if cloudy and layout.version == 1:
        raise UsageError("--cloudy means nothing for version 1 of BigEarthNet: leave it out")
    if layout.form == "store":
        return _of_store(open_store(layout.root), bands, rule, cloudy, resample)
    copy = open_copy(layout, cloudy=cloudy)
    chosen = _usable(root, bands, copy.halves)
    how = resample or DEFAULT
    images = PatchScenes(copy.source, copy.patches.names, chosen, resample=how, notes=copy.notes)
    notes = [
        "Training reads pixels far faster from what adagc prepare makes of this folder.",
    ]
    areas = _areas(layout, copy.patches, count_maps)
    if areas is None:
        notes.append(
            _NO_MAPS
            if layout.maps is None
            else "Reference maps are there; adagc simulate --root and adagc prepare count them."
        )
    return _collection(layout.title, images, copy.patches, rule, layout.version, areas, notes)


def _areas(layout: Layout, patches: Patches, workers: int) -> NDArray[np.float32] | None:
    """The share of every class in every patch, if their maps are counted or shall be.

    Counting takes minutes for all of reBEN: `adagc simulate --root` and `adagc prepare` do it.
    """
    if workers or (layout.maps is not None and counts_file(layout).is_file()):
        return areas_of(layout, patches, workers=max(workers, 1))[0]
    return None


def _of_store(
    store: Store,
    bands: tuple[str, ...] | None,
    rule: SplitRule,
    cloudy: bool,
    resample: Resample | None,
) -> Collection:
    plan = store.plan
    halves = [half for half in HALVES if getattr(plan, half)]
    chosen = _usable(store.folder, bands, halves)
    if cloudy and not plan.cloudy:
        raise DataError(
            f"{store.folder} was prepared without the patches with snow, clouds or shadow: prepare"
            " another store with --cloudy"
        )
    if resample not in (None, plan.resample) and plan.form == "memmap":
        raise DataError(
            f"{store.folder} was prepared with --resample {plan.resample}, which cannot be changed"
            " when it is read: prepare another store"
        )
    patches, rows = store.patches, store.rows
    areas = store.areas
    keep = np.arange(len(patches), dtype=np.int64)
    if plan.cloudy and not cloudy:
        keep = np.flatnonzero(patches.flags & CLOUDY == 0).astype(np.int64)
    source: Source = store.source
    if len(keep) < len(patches):
        patches, rows = patches.take(keep), rows[keep]
        areas = None if areas is None else areas[keep]
        source = store.source.chosen(keep)
    how = resample or plan.resample
    lacking = [f"{HALVES[half]} is missing" for half in HALVES if half not in halves]
    # What was measured is of the bands as they were enlarged then.
    records = store.records if how == plan.resample else None
    images = PatchScenes(
        source, patches.names, chosen, resample=how, records=records, rows=rows, notes=lacking
    )
    notes = [_NO_MAPS] if areas is None else []
    if hidden := len(store.patches) - len(patches):
        notes.append(f"{hidden:,} patches with snow, clouds or shadow are used with --cloudy only")
    return _collection(store.title, images, patches, rule, plan.version, areas, notes)


def _usable(root: Path, wanted: tuple[str, ...] | None, halves: Sequence[str]) -> tuple[str, ...]:
    """The bands that are wanted, by default all of the halves that are there.

    Raises:
        DataError: A band is wanted of a half that is not there.
    """
    bands: tuple[str, ...] = ()
    for half, own, other in (("radar", RADAR, "s2"), ("optical", OPTICAL, "s1")):
        if half in halves:
            bands += own
        elif wanted is not None and {*own} & {*wanted}:
            raise DataError(
                f"{root}: {HALVES[half]} is missing: add it, or use the other one alone: --bands"
                f" {other}"
            )
    return wanted or bands


def _collection(
    title: str,
    images: PatchScenes,
    patches: Patches,
    rule: SplitRule,
    version: int,
    areas: NDArray[np.float32] | None,
    notes: Sequence[str],
) -> Collection:
    if rule.place is None:
        splits = splits_of(patches, rule, version)
    else:
        splits = splits_by_place(images, rule.place, rule.seed)
    if splits.warning is not None:
        images.remark(splits.warning)
    named = [*images.notes, *notes, splits.sentence]
    parts = splits.rows
    unlabelled = int((~patches.labels.any(axis=1)).sum())
    if unlabelled:
        parts = {part: rows[patches.labels[rows].any(axis=1)] for part, rows in parts.items()}
        named.append(
            f"{unlabelled:,} patches have none of the {len(CLASSES)} classes and are left out, as"
            " in the original"
        )
    unmapped = 0 if areas is None else int((areas.max(axis=1) == 0).sum())
    if unmapped:
        named.append(
            f"{unmapped:,} patches have no reference map that can be read, or none with a labelled"
            " pixel: they get no dominant label"
        )
    kinds = f"{len(images.bands)} bands ({' '.join(images.bands)})"
    return Collection(
        images=images,
        classes=CLASSES,
        splits=parts,
        truth=patches.labels,
        areas=areas,
        description=f"{title}, {len(images):,} patches, {kinds}, {images.resample} for 20 and 60 m",
        notes=tuple(named),
    )


__all__ = [
    "Copy",
    "bigearthnet_collection",
    "open_copy",
    "open_whatever_is_there",
    "require_layout",
]

"""What `adagc inspect` opens of a copy of BigEarthNet: the bands that are there."""

from __future__ import annotations

from pathlib import Path

from adagc.datasets.bigearthnet.layout import find_layout
from adagc.datasets.bigearthnet.opening import bigearthnet_collection, open_copy
from adagc.datasets.bigearthnet.store import read_plan
from adagc.datasets.collection import Collection


def open_whatever_is_there(root: Path) -> Collection:
    """Open a copy with all bands, or with those of the only half that is there."""
    layout = find_layout(root)
    halves: tuple[str, ...] = ("optical", "radar")
    if layout is not None and layout.form == "store":
        plan = read_plan(root)
        halves = tuple(half for half in halves if plan is None or getattr(plan, half))
    elif layout is not None:
        halves = open_copy(layout).halves
    only = {"optical": ["s2"], "radar": ["s1"]}
    bands = only[halves[0]] if len(halves) == 1 else None
    return bigearthnet_collection(root, bands=bands)

"""The data set `bigearthnet`: Sentinel-1 and -2 pairs of version 1 or 2 (reBEN), in every form.

Sumbul et al., "BigEarthNet-MM", IEEE GRSM 2021; Clasen et al., "reBEN", IGARSS 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc.datasets.bigearthnet.layout import METADATA, STORE, find_layout
from adagc.datasets.registry import DataSet, Recognised

if TYPE_CHECKING:
    from adagc.datasets.collection import Collection


def _recognise(root: Path) -> Recognised | None:
    """A copy in any form; the bands of a half that is missing are left out."""
    layout = find_layout(root)
    if layout is None:
        return None

    def opened(nodata: float | None, **options: Any) -> Collection:
        from adagc.datasets.bigearthnet.opening import open_whatever_is_there

        return open_whatever_is_there(layout.root, **options)

    return Recognised(layout.title, layout.root, collection=opened)


def _files(settings: Mapping[str, Any]) -> dict[str, Path]:
    """What says which patches there are: the finished store, or the metadata."""
    if settings.get("root") is None:
        return {}
    layout = find_layout(Path(settings["root"]))
    if layout is None:
        return {}
    if layout.form == "store":
        return {"root/store.json": layout.root / STORE}
    return {} if layout.metadata is None else {f"root/{METADATA}": layout.metadata}


DATASET = DataSet(
    name="bigearthnet",
    about=(
        "BigEarthNet and reBEN: GeoTIFF files, the LMDB store of reBEN's converter, or what adagc"
        " prepare makes of them; 14 bands, 19 classes"
    ),
    home="adagc.datasets.bigearthnet.opening:bigearthnet_collection",
    title="BigEarthNet",
    brings_truth=True,
    licence="BigEarthNet is published under the Community Data License Agreement, Permissive 1.0.",
    recognise=_recognise,
    files=_files,
)

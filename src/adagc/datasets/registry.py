"""Data sets by kind: images, splits and, where they exist, clean labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adagc.datasets.collection import Collection
from adagc.errors import UsageError
from adagc.images.base import SceneDataset

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {
    "folder": "your own images: PNG, JPEG, TIFF, GeoTIFF or .npy at any depth, and a label CSV",
    "aid": "AID-multilabel (3,000 aerial RGB images, 17 classes) in its published folders",
    "ucmerced": "UC Merced Land Use (2,100 aerial RGB images, 17 classes) in its published folders",
    "array": "an N x D or N x C x H x W array (.npy, .npz, .safetensors), such as embeddings",
    "synthetic": "made-up Sentinel-like scenes, 14 bands, 19 classes; nothing to download",
}

_OPTIONS = {
    "folder": {"root", "size", "split", "truth", "bands", "skip_unreadable"},
    "aid": {"root", "size"},
    "ucmerced": {"root", "size"},
    "array": {"root", "split", "truth", "bands"},
    "synthetic": {"size"},
}


def open_collection(
    kind: str,
    root: str | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    split: str | None = None,
    labels: str | None = None,
    truth: str | None = None,
    bands: Sequence[str] | None = None,
    cache: str | None = None,
    skip_unreadable: bool = False,
    scenes: int = 1500,
) -> Collection:
    """Open a data set of a kind of `KINDS`; options that do not concern the kind are refused."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind of data {kind!r}: choose from {', '.join(KINDS)}")
    given = {
        "root": root,
        "size": size,
        "split": split,
        "truth": truth,
        "bands": bands,
        "skip_unreadable": skip_unreadable or None,
    }
    for name, value in given.items():
        if value is not None and name not in _OPTIONS[kind]:
            raise UsageError(f"--{name} means nothing for --data {kind}: leave it out")
    place, labelled, clean, parts = (
        None if value is None else Path(value) for value in (cache, labels, truth, split)
    )
    if kind == "synthetic":
        from adagc.datasets.synthetic import synthetic_collection

        return synthetic_collection(
            n_train=scenes, n_val=scenes // 2, n_test=scenes, size=size or 32, seed=seed
        )
    if root is None:
        raise UsageError(f"--root is missing: say where the {kind} data is")
    where = Path(root)
    if kind == "aid":
        from adagc.datasets.aid import aid_collection

        return aid_collection(where, size=size or 96, seed=seed, cache=place)
    if kind == "ucmerced":
        from adagc.datasets.ucmerced import ucmerced_collection

        return ucmerced_collection(where, size=size or 96, seed=seed, cache=place)
    if kind == "array":
        from adagc.datasets.array import array_collection

        return array_collection(
            where, labels=labelled, truth=clean, split=parts, seed=seed, bands=bands
        )
    from adagc.datasets.folder import folder_collection

    return folder_collection(
        where,
        size=size,
        labels=labelled,
        truth=clean,
        split=parts,
        seed=seed,
        bands=bands,
        cache=place,
        skip_unreadable=skip_unreadable,
    )


__all__ = ["KINDS", "Collection", "SceneDataset", "open_collection"]

"""Digests of what a run reads, which may move but must not change before it resumes.

These are the files that its settings name, and the images and clean labels as they were opened. A
finished run is tested on the images and labels with the same digests.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from adagc.datasets.registry import DEFAULT, find
from adagc.errors import UsageError
from adagc.images.scan import beside

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adagc.datasets.collection import Collection
    from adagc.images.base import SceneDataset

_FILES = (
    "labels", "truth", "split", "text", "weights", "priors", "selection", "map_classes",
)  # fmt: skip
# Bytes of a split's images that are read for its digest: all images of most data sets, evenly
# spaced ones of the others, in a tenth of a second.
_MOST = 64_000_000
_CHUNK = 256  # images that are read at once


def contents(settings: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 digest of every file that the settings name, by the name of the setting.

    `root` is included if it is itself the file with the data. A folder of images has no digest of
    its own; see `data_digests`.
    """
    files = {key: path for key in _FILES if (path := located(settings, key)) is not None}
    files |= find(settings.get("data", DEFAULT)).files(settings)
    return {key: _digest(path) for key, path in files.items()}


def located(settings: Mapping[str, Any], key: str) -> Path | None:
    """The file that a setting names, or None if it names none.

    A path may also be relative to the folder of the images (`root`), as when data is opened.
    """
    value = settings.get(key)
    if value is None:
        return None
    path = Path(value)
    if key in ("weights", "priors") and not path.is_file():
        return None  # a word such as "registry", or a mistake that is reported on loading
    root = settings.get("root")
    return path if root is None else beside(Path(root), path)


def _digest(path: Path) -> str:
    try:
        stat = path.stat()
        return _digest_of(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: give the file, or edit the scenario") from None


@lru_cache(maxsize=64)  # a benchmark asks for every run, and embedding files may be large
def _digest_of(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def data_digests(collection: Collection) -> dict[str, str]:
    """SHA-256 digests of the images of every split, and of their clean labels where known.

    The keys are "test images", "clean labels of test images" and so on.
    """
    digests: dict[str, str] = {}
    for split, rows in collection.splits.items():
        digests |= digests_of(collection, rows, split)
    return digests


def digests_of(collection: Collection, rows: NDArray[np.int64], split: str) -> dict[str, str]:
    """The digests of these rows under the names that they have as the images of this split."""
    digests = {f"{split} images": images_digest(collection.images, rows)}
    if collection.has_truth(rows).any():
        digests[f"clean labels of {split} images"] = _clean_labels(collection, rows)
    return digests


def images_digest(images: SceneDataset, rows: NDArray[np.int64]) -> str:
    """Digest of the values of these images, in this order; of evenly spaced ones if large."""
    known = _known.setdefault(images, {})
    key = rows.tobytes()
    if key not in known:
        size = len(rows) * math.prod(images.shape) * images.dtype.itemsize
        chosen = rows[:: max(1, math.ceil(size / _MOST))]
        digest = hashlib.sha256(f"{len(rows)} {images.shape} {images.dtype.str}".encode())
        for start in range(0, len(chosen), _CHUNK):
            digest.update(images.gather(chosen[start : start + _CHUNK]).tobytes())
        known[key] = digest.hexdigest()
    return known[key]


# Digests of images that are still open, by their rows: a benchmark asks for every run.
_known: WeakKeyDictionary[SceneDataset, dict[bytes, str]] = WeakKeyDictionary()


def _clean_labels(collection: Collection, rows: NDArray[np.int64]) -> str:
    """Digest of the clean labels of these images, in any order of the classes."""
    assert collection.truth is not None
    names = sorted(collection.classes)
    order = [collection.classes.index(name) for name in names]
    digest = hashlib.sha256(json.dumps(names).encode())
    digest.update(collection.has_truth(rows).tobytes())
    digest.update(collection.truth[rows][:, order].tobytes())
    return digest.hexdigest()

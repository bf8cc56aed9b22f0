"""The files that a run is made from, by content: they may move, but not change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from adagc.datasets.registry import DEFAULT, find
from adagc.errors import UsageError
from adagc.images.scan import beside

_FILES = ("labels", "truth", "split", "text", "weights")


def contents(settings: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> digest of the file it names; the root counts where it is the data itself.

    Folders of images are known by the names in their split (and their labels), not by every pixel.
    """
    found = {key: path for key in _FILES if (path := located(settings, key)) is not None}
    found |= find(settings.get("data", DEFAULT)).files(settings)
    return {key: _digest(path) for key, path in found.items()}


def located(settings: Mapping[str, Any], key: str) -> Path | None:
    """The file that a setting names; as data is opened, it may also lie beside the images."""
    told = settings.get(key)
    if told is None:
        return None
    path = Path(told)
    if key == "weights" and not path.is_file():
        return None  # a word such as registry, or a mistake that loading them names
    root = settings.get("root")
    return path if root is None else beside(Path(root), path)


def _digest(path: Path) -> str:
    try:
        stat = path.stat()
        return _digest_of(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: give the file, or mend the scenario") from None


@lru_cache(maxsize=64)  # a bench asks once per run, and embeddings may be gigabytes
def _digest_of(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The files that a run is made from, by content: they may move, but not change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from adagc.errors import UsageError
from adagc.images.array import array_file

_FILES = ("labels", "truth", "split", "text", "weights")


def contents(settings: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> digest of the file it names; the root counts where it is the data itself.

    Folders of images are known by the names in their split (and their labels), not by every pixel.
    """
    found = {key: _digest(path) for key in _FILES if (path := _path(settings, key)) is not None}
    if settings.get("data") == "array" and settings.get("root") is not None:
        root = Path(settings["root"])
        array = array_file(root)
        if array is None:
            raise UsageError(f"{root} holds no array: give the file, or mend the scenario")
        found["root"] = _digest(array)
        if (names := root / "names.txt").is_file():
            found["names"] = _digest(names)
    return found


def _path(settings: Mapping[str, Any], key: str) -> Path | None:
    told = settings.get(key)
    if told is None:
        return None
    path = Path(told)
    if key == "weights" and not path.is_file():
        return None  # a word such as registry, or a mistake that loading them names
    if not path.exists() and settings.get("data") == "array" and settings.get("root") is not None:
        # As such sets are opened: what is not found from here may lie beside the array.
        root = Path(settings["root"])
        beside = (root if root.is_dir() else root.parent) / path
        return beside if beside.exists() else path
    return path


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

"""Which files under a folder are images, and what the images are called."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from adagc.errors import DataError
from adagc.images.decode import EXTENSIONS


def find_images(root: Path, folders: Iterable[str] = ("",)) -> tuple[str, ...]:
    """Image files at any depth as sorted posix paths relative to `root`; hidden ones are skipped.

    Args:
        root: The folder to look in.
        folders: Search only these folders of `root`.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; check the path")
    found: list[str] = []
    for folder in folders:
        for where, below, files in os.walk(root / folder, followlinks=True):
            below[:] = [name for name in below if not name.startswith(".")]
            found += [
                (Path(where) / name).relative_to(root).as_posix()
                for name in files
                if not name.startswith(".") and name.lower().endswith(EXTENSIONS)
            ]
    return tuple(sorted(found))


def image_names(files: Sequence[str]) -> tuple[str, ...]:
    """Relative paths without extension; files that differ only in it keep theirs."""
    short = [PurePosixPath(file).with_suffix("").as_posix() for file in files]
    seen = Counter(short)
    return tuple(name if seen[name] == 1 else file for name, file in zip(short, files, strict=True))


def beside(root: Path, path: Path) -> Path:
    """The path; if nothing is there, that of the same name in the folder of the data."""
    found = (root if root.is_dir() else root.parent) / path
    return found if not path.exists() and found.exists() else path

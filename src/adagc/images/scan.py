"""Find the image files in a folder, and name the images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from adagc.errors import DataError
from adagc.images.decode import EXTENSIONS


def find_images(root: Path, folders: Iterable[str] = ("",)) -> tuple[str, ...]:
    """Find image files in a folder and its subfolders; hidden files and folders are skipped.

    Args:
        root: The folder.
        folders: Search only these folders in `root`; all of it by default.

    Returns:
        Paths relative to `root`, sorted, with / between folders.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; check the path")
    paths: list[str] = []
    for folder in folders:
        for where, subfolders, files in os.walk(root / folder, followlinks=True):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            paths += [
                (Path(where) / name).relative_to(root).as_posix()
                for name in files
                if not name.startswith(".") and name.lower().endswith(EXTENSIONS)
            ]
    return tuple(sorted(paths))


def image_names(files: Sequence[str]) -> tuple[str, ...]:
    """Names of images: their relative paths without extension.

    Files whose paths differ only in the extension keep it, so that all names are different.
    """
    short = [PurePosixPath(file).with_suffix("").as_posix() for file in files]
    uses = Counter(short)
    return tuple(name if uses[name] == 1 else file for name, file in zip(short, files, strict=True))


def beside(root: Path, path: Path) -> Path:
    """The path itself or, if only that exists, the same path relative to the folder of the data.

    Args:
        root: The data: a folder, or a file in its folder.
        path: Path as the user gave it.
    """
    in_folder = (root if root.is_dir() else root.parent) / path
    return in_folder if not path.exists() and in_folder.exists() else path

"""Find the image files in a folder, and name the images."""

from __future__ import annotations

import heapq
import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from adagc.errors import DataError
from adagc.images.decode import EXTENSIONS


def find_images(root: Path, folders: Iterable[str] = ("",)) -> tuple[str, ...]:
    """Find image files in a folder and its subfolders; hidden files and folders are skipped.

    Links are followed, but no directory is searched twice, however many links lead to it, and none
    that contains `root`. A link to an image counts as an image, also if it is broken: reading it
    will say so. Pipes and devices are skipped.

    Args:
        root: The folder.
        folders: Search only these folders in `root`; all of it by default.

    Returns:
        Paths relative to `root`, sorted, with / between folders.
    """
    root = Path(root)
    require_folder(root)
    return tuple(sorted(_walk(root, list(folders))))


def require_folder(root: Path) -> None:
    """Raise a DataError if there is no folder at this path, which tells a file from nothing."""
    if root.is_dir():
        return
    if root.exists():
        raise DataError(
            f"{root}: this is a file, not a folder; give the folder of the images, or an array with"
            " --data array"
        )
    raise DataError(f"{root}: no such folder; check the path")


def _walk(root: Path, folders: Sequence[str]) -> Iterator[str]:
    """The image files in these folders, by their paths relative to `root`.

    Links to folders are followed last, so that an image is named by its own place wherever that is
    inside `root`.
    """
    seen = {_identity(folder) for folder in root.resolve().parents}
    waiting = [root / folder for folder in reversed(folders)]
    links: list[Path] = []  # a heap: the first in alphabetical order is followed first
    while waiting or links:
        place = waiting.pop() if waiting else heapq.heappop(links)
        try:
            identity = _identity(place)
            if identity in seen:
                continue
            seen.add(identity)
            with os.scandir(place) as entries:
                visible = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            raise DataError(
                f"{place}: cannot be opened ({error.strerror}); check its permissions"
            ) from error
        # Once per folder: a Path per file would take most of the time in folders of 100,000.
        inside = place.relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        for entry in visible:
            if not _is_folder(entry):
                if entry.name.lower().endswith(EXTENSIONS) and not _is_special(entry):
                    yield f"{prefix}{entry.name}"
            elif entry.is_symlink():
                heapq.heappush(links, Path(entry.path))
            else:
                waiting.append(Path(entry.path))


def _identity(folder: Path) -> tuple[int, int]:
    """Numbers that are the same for all paths to a directory."""
    stat = folder.stat()
    return stat.st_dev, stat.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_special(entry: os.DirEntry[str]) -> bool:
    """Whether it is a pipe, a socket or a device: reading one could wait for ever."""
    try:
        return not entry.is_file() and entry.stat() is not None
    except OSError:  # a broken link, about which reading says more
        return False


def image_names(files: Sequence[str]) -> tuple[str, ...]:
    """Names of images: their relative paths without extension.

    A name that two files would have, or that is the path of another file, keeps its extension, so
    that all names are different.
    """
    short = [posixpath.splitext(file)[0] for file in files]
    uses = Counter([*short, *files])
    return tuple(name if uses[name] == 1 else file for name, file in zip(short, files, strict=True))


def beside(root: Path, path: Path) -> Path:
    """The path itself or, if only that exists, the same path relative to the folder of the data.

    Args:
        root: The data: a folder, or a file in its folder.
        path: Path as the user gave it.
    """
    in_folder = (root if root.is_dir() else root.parent) / path
    return in_folder if not path.exists() and in_folder.exists() else path

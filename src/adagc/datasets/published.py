"""Reading the published multi-label scene data sets, which share one layout.

They have one folder of images per scene type, and one table with a row per image (named by its
file name without folder and extension) and a column of 0 and 1 per class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.registry import Recognised
from adagc.errors import DataError, UsageError
from adagc.images.cached import CachedScenes
from adagc.images.scan import find_images, require_folder
from adagc.images.store.cache import open_cache
from adagc.labels import locate, read_labels


@dataclass(frozen=True)
class Layout:
    """Where a published data set keeps its images and its label table."""

    title: str
    folders: tuple[str, ...]  # top folders that hold the images
    tables: tuple[str, ...]  # possible file names of the label table
    tree: str  # the expected files in words, for the error message


@dataclass(frozen=True)
class Published:
    """A published data set that has been read but not yet divided into splits."""

    images: CachedScenes
    classes: tuple[str, ...]
    truth: NDArray[np.bool_]  # (N, C)
    scenes: tuple[str, ...]  # scene type of each image
    folders: tuple[str, ...]  # which of the layout's folders each image is in
    notes: tuple[str, ...]


def open_published(
    root: Path, layout: Layout, *, size: int | None, cache: Path | None, drop: Sequence[str]
) -> Published:
    """Read the images and clean labels of a published data set.

    Args:
        root: The folder of the data set, or the folder that contains it.
        layout: The layout of this data set.
        size: Height and width in pixels that images are resized to; None means that of the files.
        cache: Folder in which decoded images are kept; None for the default.
        drop: Classes to leave out.

    Raises:
        DataError: Files are missing, or an image has no row in the table.
    """
    root = Path(root)
    location = find_published(root, layout)
    if location is None:
        require_folder(root)
        raise DataError(
            f"{root}: not a copy of {layout.title}, it lacks {_missing(root, layout)[0]}; "
            f"expected {layout.tree}"
        )
    root, table_path = location
    table = read_labels(table_path)
    files = find_images(root, layout.folders)
    by_stem: dict[str, str] = {}
    for file in files:
        other = by_stem.setdefault(PurePosixPath(file).stem, file)
        if other != file:
            raise DataError(f"{root}: {other} and {file} are the same image; remove one of them")
    rows = locate(table, list(by_stem), unknown="ignore")
    unlisted = np.flatnonzero(rows < 0)
    if len(unlisted):
        raise DataError(
            f"{table_path}: {len(unlisted)} images have no row, the first is "
            f"{files[unlisted[0]]}; complete the table or remove the images"
        )
    store = open_cache(root, files, size=size, cache=cache)
    images = CachedScenes(store, list(by_stem))
    unknown = sorted(set(drop) - set(table.classes))
    if unknown:
        raise UsageError(f"cannot drop {unknown[0]!r}; the classes are {', '.join(table.classes)}")
    keep = [i for i, name in enumerate(table.classes) if name not in drop]
    note = f"{len(files)} of {len(table)} images in the label table were found"
    return Published(
        images=images,
        classes=tuple(table.classes[i] for i in keep),
        truth=table.positive[rows][:, keep],
        scenes=tuple(scene_of(file, layout.folders) for file in files),
        folders=tuple(PurePosixPath(file).parts[0] for file in files),
        notes=(*((note,) if len(table) > len(files) else ()), *store.notes),
    )


def find_published(root: Path, layout: Layout) -> tuple[Path, Path] | None:
    """The folder with all files of the layout (`root` or a folder in it), and its label table.

    None if no folder has them all.
    """
    if not root.is_dir():
        return None
    inside = [path for path in sorted(root.iterdir()) if path.is_dir()]
    for folder in (root, *inside):
        if not _missing(folder, layout):
            return folder, next(t for name in layout.tables if (t := folder / name).is_file())
    return None


def recognise_published(root: Path, layout: Layout) -> Recognised | None:
    """Describe the data set at this path; None if it is not a copy of this data set."""
    location = find_published(root, layout)
    return location and Recognised(layout.title, location[0], layout.folders, truth=location[1])


def _missing(root: Path, layout: Layout) -> list[str]:
    """The folders and files of the layout that `root` does not have."""
    lacking = [folder for folder in layout.folders if not (root / folder).is_dir()]
    if not any((root / name).is_file() for name in layout.tables):
        lacking.append(layout.tables[0])
    if not lacking and not find_images(root, layout.folders):
        lacking.append("images")
    return lacking


def scene_of(file: str, folders: Sequence[str]) -> str:
    """The scene type of an image: its folder or, without scene folders, its name without number.

    Args:
        file: Path of the image, relative to the data set.
        folders: The top folders that hold the images.
    """
    path = PurePosixPath(file)
    if path.parent.as_posix() in folders:
        return re.sub(r"[\W_]*\d+$", "", path.stem).lower()
    return path.parent.name.lower()

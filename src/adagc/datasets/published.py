"""What the published multi-label scene collections have in common.

One folder of images per scene type, and one table with a row per image (the file name without
folder and extension) and a 0/1 column per class.
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
from adagc.images.scan import find_images
from adagc.images.store.cache import open_cache
from adagc.labels import locate, read_labels


@dataclass(frozen=True)
class Layout:
    """The folder shape of one published collection."""

    title: str
    folders: tuple[str, ...]  # hold the images
    tables: tuple[str, ...]  # the label table goes by one of these names
    tree: str  # for the error that shows what is expected


@dataclass(frozen=True)
class Published:
    """A collection as it was published, before it is split."""

    images: CachedScenes
    classes: tuple[str, ...]
    truth: NDArray[np.bool_]  # (N, C)
    scenes: tuple[str, ...]  # scene type of each image
    folders: tuple[str, ...]  # which of the layout's folders each image is in
    notes: tuple[str, ...]


def open_published(
    root: Path, layout: Layout, *, size: int | None, cache: Path | None, drop: Sequence[str]
) -> Published:
    """Images and truth of one collection; every image must be in the table.

    Args:
        root: The collection's folder, or the folder it is in.
        layout: Where things are.
        size: Side length of the square images.
        cache: Where caches live.
        drop: Classes to leave out.
    """
    root = Path(root)
    found = find_published(root, layout)
    if found is None:
        if not root.is_dir():
            raise DataError(f"{root}: no such folder; check the path")
        raise DataError(
            f"{root}: not a copy of {layout.title}, it lacks {_missing(root, layout)[0]}; "
            f"expected {layout.tree}"
        )
    root, table_path = found
    table = read_labels(table_path)
    files = find_images(root, layout.folders)
    by_stem: dict[str, str] = {}
    for file in files:
        other = by_stem.setdefault(PurePosixPath(file).stem, file)
        if other != file:
            raise DataError(f"{root}: {other} and {file} are the same image; remove one of them")
    rows = locate(table, list(by_stem), unknown="ignore")
    strangers = np.flatnonzero(rows < 0)
    if len(strangers):
        raise DataError(
            f"{table_path}: {len(strangers)} images have no row, the first is "
            f"{files[strangers[0]]}; complete the table or remove the images"
        )
    images = CachedScenes(open_cache(root, files, size=size, cache=cache), list(by_stem))
    unknown = sorted(set(drop) - set(table.classes))
    if unknown:
        raise UsageError(f"cannot drop {unknown[0]!r}; the classes are {', '.join(table.classes)}")
    keep = [i for i, name in enumerate(table.classes) if name not in drop]
    note = f"{len(files)} of {len(table)} images in the label table were found"
    return Published(
        images=images,
        classes=tuple(table.classes[i] for i in keep),
        truth=table.positive[rows][:, keep],
        scenes=tuple(_scene(file, layout) for file in files),
        folders=tuple(PurePosixPath(file).parts[0] for file in files),
        notes=(note,) if len(table) > len(files) else (),
    )


def find_published(root: Path, layout: Layout) -> tuple[Path, Path] | None:
    """The folder that has it all (`root` or a folder in it) and the table; None if none does."""
    if not root.is_dir():
        return None
    inside = [path for path in sorted(root.iterdir()) if path.is_dir()]
    for folder in (root, *inside):
        if not _missing(folder, layout):
            return folder, next(t for name in layout.tables if (t := folder / name).is_file())
    return None


def recognise_published(root: Path, layout: Layout) -> Recognised | None:
    """What is at this path, if it is a copy of this collection."""
    found = find_published(root, layout)
    return found and Recognised(layout.title, found[0], layout.folders, truth=found[1])


def _missing(root: Path, layout: Layout) -> list[str]:
    lacking = [folder for folder in layout.folders if not (root / folder).is_dir()]
    if not any((root / name).is_file() for name in layout.tables):
        lacking.append(layout.tables[0])
    if not lacking and not find_images(root, layout.folders):
        lacking.append("images")
    return lacking


def _scene(file: str, layout: Layout) -> str:
    """The folder an image is in; for copies without scene folders, its name without number."""
    path = PurePosixPath(file)
    if path.parent.as_posix() in layout.folders:
        return re.sub(r"[\W_]*\d+$", "", path.stem).lower()
    return path.parent.name.lower()

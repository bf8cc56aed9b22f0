"""Maps of classes in a folder, one for each image: which file belongs to which, and what it says.

A file with the columns `code,class` says what the numbers of the pixels mean.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, LabelFileError, UsageError, examples
from adagc.images.maps import EXTENSIONS
from adagc.images.scan import find_images
from adagc.images.store.place import open_folder
from adagc.labels.files import read_pairs
from adagc.labels.maps import class_areas
from adagc.labels.matching import locate
from adagc.labels.table import LabelTable, check_names
from adagc.suggest import hint_or_list

log = logging.getLogger(__name__)

WORKERS = min(8, os.cpu_count() or 1)
SHARE = 0.03  # of the labelled pixels: below it a class is not counted as present


@dataclass(frozen=True)
class MapAreas:
    """What maps say about some images."""

    areas: NDArray[np.float32]  # (N, C) share of the labelled pixels; zeros without any
    labelled: NDArray[np.bool_]  # (N,) images that have a map with at least one labelled pixel
    notes: tuple[str, ...] = ()  # remarks for reports


@dataclass(frozen=True)
class MapFolder:
    """A folder of maps, and what the numbers in them mean.

    Args:
        root: The folder; maps may lie in folders of it, as the images do.
        meaning: The file that says which class a number means.
        codes: Number of a pixel -> name of its class.
        cache: Folder of all caches, in which counted pixels are kept; None for the default.
    """

    root: Path
    meaning: Path
    codes: Mapping[int, str]
    cache: Path | None = None

    @classmethod
    def open(
        cls, root: Path | None, meaning: Path | None, *, cache: Path | None = None
    ) -> MapFolder | None:
        """The maps that two options name; None if neither is given."""
        if root is None and meaning is None:
            return None
        if meaning is None:
            raise UsageError(
                "--maps needs --map-classes: a CSV file with the columns code,class that says"
                " what the numbers in the maps mean"
            )
        if root is None:
            raise UsageError("--map-classes needs --maps: the folder of the maps")
        return cls(Path(root), Path(meaning), read_map_classes(Path(meaning)), cache)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the order in which the file names them first."""
        return tuple(dict.fromkeys(self.codes.values()))

    def areas(
        self, names: Sequence[str], classes: Sequence[str], *, left_out: Sequence[str] = ()
    ) -> MapAreas:
        """Count the pixels of the maps of these images; what was counted before is not read again.

        Args:
            names: Names of the images, to which those of the maps are matched as those of label
                files are. If no name fits, an end that all maps have in common is left out, as in
                001_mask.png.
            classes: Names of all classes, in the order of the columns.
            left_out: Names of images that exist but are not used.

        Raises:
            DataError: No map fits an image, a map cannot be read, or its classes are others.
        """
        numbers = {name: i for i, name in enumerate(classes)}
        for name in self.classes:
            if name not in numbers:
                raise DataError(
                    f"{self.meaning}: there is no class {name!r}"
                    f"{hint_or_list(name, classes, 'classes')}; rename it, or remove its lines"
                    " if its pixels are to count as unlabelled"
                )
        files = [file for file in find_images(self.root) if file.lower().endswith(EXTENSIONS)]
        if not files:
            raise DataError(
                f"{self.root} holds no maps: expected files like {', '.join(EXTENSIONS)}"
            )
        rows = self._rows(files, names, left_out)
        found = np.flatnonzero(rows >= 0)
        place = hashlib.sha256(os.fspath(self.root.resolve()).encode(errors="surrogateescape"))
        counted = class_areas(
            [self.root / files[row] for row in rows[found].tolist()],
            {code: numbers[name] for code, name in self.codes.items()},
            len(classes),
            workers=WORKERS,
            cache=open_folder(self.cache, place.hexdigest()[:20]) / "maps.counts",
            root=self.root,
        )
        areas = np.zeros((len(names), len(classes)), dtype=np.float32)
        areas[found] = counted
        labelled = np.asarray(areas.any(axis=1))
        notes = []
        if len(found) < len(names):
            without = [names[i] for i in np.flatnonzero(rows < 0).tolist()]
            notes.append(f"{len(without)} of {len(names)} images have no map: {examples(without)}")
        empty = [names[i] for i in found[~labelled[found]].tolist()]
        if empty:
            notes.append(f"{len(empty)} maps have no labelled pixel: {examples(empty)}")
        return MapAreas(areas, labelled, tuple(notes))

    def _rows(
        self, files: Sequence[str], names: Sequence[str], left_out: Sequence[str]
    ) -> NDArray[np.int64]:
        """The place in `files` of the map of each image, -1 for none."""
        for ending in ("", *_endings(files)):
            called = files
            if ending:
                called = [PurePosixPath(file).with_suffix("").as_posix() for file in files]
                called = [name.removesuffix(ending) for name in called]
            if len(set(called)) < len(called):
                continue
            none = np.zeros((len(called), 0), dtype=np.int8)
            table = LabelTable(tuple(called), (), none)
            try:
                rows = locate(table, names, what="images", unknown="ignore", left_out=left_out)
            except LabelFileError as error:
                raise DataError(f"{self.root}: {str(error).partition(': ')[2]}") from None
            if (rows >= 0).any():
                return rows
        raise DataError(
            f"{self.root}: no map has the name of an image ({examples(files)} are maps,"
            f" {examples(names)} are images); call each map as its image"
        )


def read_map_classes(path: Path) -> dict[int, str]:
    """Read a file with the columns `code,class`: the class of each number in maps.

    Several numbers may mean one class; a number that is not there means that a pixel is not
    labelled.

    Raises:
        LabelFileError: The file cannot be used; the message names file, line and remedy.
    """
    words, names, lines = read_pairs(path, ("code", "class"))
    codes: dict[int, str] = {}
    for word, name, line in zip(words, names, lines, strict=True):
        try:
            code = int(word)
        except ValueError:
            raise LabelFileError(
                f"{path}, line {line}: expected a whole number and a class, not {word!r}"
            ) from None
        if code in codes:
            raise LabelFileError(f"{path}, line {line}: the code {code} is there twice; remove one")
        try:
            check_names([name], "class")
        except LabelFileError as error:
            raise LabelFileError(f"{path}, line {line}: {error}") from None
        codes[code] = name
    if not codes:
        raise LabelFileError(f"{path} names no class; add a line such as '1,forest'")
    return codes


def _endings(files: Sequence[str]) -> list[str]:
    """What may be an end that the names of all files have in common, the longest first."""
    stems = [PurePosixPath(file).stem[::-1] for file in files]
    ends = [min(stems), max(stems)]
    common = os.path.commonprefix(ends)[::-1]  # noqa: RUF071 (of the reversed names)
    return [common[i:] for i, sign in enumerate(common) if sign in "_-."]


__all__ = ["SHARE", "MapAreas", "MapFolder", "read_map_classes"]

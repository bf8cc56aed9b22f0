"""Check images and labels before training: what there is, and what will cause problems."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.datasets.inspect.areas import summarise_areas
from adagc.datasets.inspect.edges import Edges
from adagc.datasets.inspect.labels import conflict_warnings, label_warnings, summarise
from adagc.datasets.inspect.origin import origin
from adagc.datasets.inspect.record import Images, Inspection, image_warnings, render
from adagc.datasets.registry import DEFAULT, Recognised, registry
from adagc.errors import DataError
from adagc.images.band_names import Named, agreed, band_names
from adagc.images.base import SceneDataset
from adagc.images.decode import Header, peek, read_image
from adagc.images.moments import CHUNK_VALUES, Moments, flaws
from adagc.images.normalisation import unit_warnings
from adagc.images.scan import find_images, image_names
from adagc.images.store.build import WORKERS, all_transparent, transparency_notes
from adagc.images.tiff import Shape
from adagc.labels import LabelTable, read_labels
from adagc.progress import tracked

_MOST_READ = 4_000_000_000  # bytes of values that are looked at: a minute; more are sampled

__all__ = [
    "Inspection",
    "duplicates",
    "inspect",
    "inspect_collection",
    "look_at_files",
    "render",
]


def inspect(
    root: Path,
    *,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    bands: Sequence[str] | None = None,
    nodata: float | None = None,
) -> Inspection:
    """Decode every image once and report; nothing is written, and unreadable files do not stop it.

    Args:
        root: A folder of images, an array file, or a copy of a published data set.
        labels: Observed labels to compare with the images.
        truth: Complete labels; None means the table that comes with a published data set, if any.
        size: Height and width in pixels that training will resize the images to; None: no check.
        mean: Mean of each band that the pretrained weights in use expect; None: no check.
        std: Standard deviation of each band that these weights expect.
        bands: Names of the bands.
        nodata: Number that stands for missing values, besides NaN and those that TIFF files name.
    """
    root = Path(root)
    source = _recognise(root)
    if source.collection is not None:
        return inspect_collection(
            source.collection(nodata),
            root=str(root),
            kind=source.kind,
            labels=labels,
            mean=mean,
            std=std,
        )
    if source.images is not None:
        images = _look_at_scenes(source.images(nodata), bands)
    else:
        files = find_images(source.place, source.folders)
        images = look_at_files(source.place, files, bands, nodata)
    observed, clean = _table(labels), _table(source.truth if truth is None else truth)
    return _inspection(str(root), source.kind, images, observed, clean, size, mean, std)


def inspect_collection(
    collection: Collection,
    *,
    root: str,
    kind: str,
    labels: Path | LabelTable | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Inspection:
    """Report on a data set that was opened as for training, generated ones included.

    Beside what `inspect` tells, the report has the splits and, where they are known, the areas of
    the classes.

    Args:
        collection: The data set.
        root: Where it is, for the headline.
        kind: What it is called.
        labels: Observed labels to compare with the images; None means those that came with it.
        mean: Mean of each band that the pretrained weights in use expect; None: no check.
        std: Standard deviation of each band that these weights expect.
    """
    images = _look_at_scenes(collection.images, None)
    observed = collection.observed if labels is None else _table(labels)
    clean = covered = areas = None
    if collection.truth is not None:
        known = np.flatnonzero(collection.has_truth(np.arange(len(collection.images))))
        clean = LabelTable(
            tuple(collection.images.names[row] for row in known),
            collection.classes,
            collection.truth[known].astype(np.int8),
        )
        if collection.areas is not None:
            covered = collection.areas[known]
            areas = summarise_areas(covered, collection.truth[known], collection.classes)
    found = _inspection(root, kind, images, observed, clean, None, mean, std, covered)
    return replace(
        found,
        splits={name: len(rows) for name, rows in collection.splits.items()},
        areas=areas,
        notes=(collection.description, *collection.notes),
    )


def _inspection(
    root: str,
    kind: str,
    images: Images,
    observed: LabelTable | None,
    clean: LabelTable | None,
    size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    areas: NDArray[np.float32] | None = None,
) -> Inspection:
    """The report on images and labels, with all warnings; `areas` has the rows of `clean`."""
    warnings = image_warnings(images, size)
    if images.statistics is not None and mean is not None and std is not None:
        warnings += unit_warnings(images.statistics, images.bands, mean, std)
    found = {}
    for what, table in (("labels", observed), ("truth", clean)):
        if table is not None:
            found[what] = summarise(table, images.names, tuple(images.unreadable))
            warnings += label_warnings(what, found[what])
    warnings += conflict_warnings(observed, clean, images.names)
    came = None
    if observed is not None and clean is not None:
        came = origin(observed, clean, images.names, areas)
    summaries = found.get("labels"), found.get("truth")
    return Inspection(root, kind, images, *summaries, tuple(warnings), origin=came)


def _table(source: Path | LabelTable | None) -> LabelTable | None:
    return source if source is None or isinstance(source, LabelTable) else read_labels(source)


def _recognise(root: Path) -> Recognised:
    """Which data set is at this path; a plain folder of images if none recognises it.

    Data sets that were registered last are asked first, as they are the more special ones.
    """
    for entry in reversed(registry().values()):
        recognised = entry.recognise(root)
        if recognised is not None:
            return recognised
    return Recognised(DEFAULT, root)


def look_at_files(
    root: Path,
    files: Sequence[str],
    bands: Sequence[str] | None = None,
    nodata: float | None = None,
) -> Images:
    """Decode every file once and summarise what the files hold.

    The statistics are of the values in the files, before any resizing.

    Args:
        root: The folder.
        files: Paths relative to `root`.
        bands: Names of the bands; two or four names keep a band that is declared transparency, one
            or three leave it out.
        nodata: Number that stands for missing values.
    """
    if not files:
        raise DataError(f"{root}: no images found; check the path")
    headers = _headers(root, files)
    declared = [file for file, header in headers.items() if header.alpha]
    alpha = bool(declared) and not all_transparent(root, declared)
    if bands is not None:
        alpha = len(bands) in (2, 4)

    def decode(file: str) -> tuple[Shape, np.dtype[Any], Moments, Edges] | str:
        """Shape, dtype, moments and edges of one file, or why it cannot be read."""
        try:
            image: NDArray[Any] = read_image(root / file, alpha=alpha, nodata=nodata)
        except DataError as error:
            return str(error).removeprefix(f"{root / file}: ")
        moments, edges = Moments(len(image)), Edges(len(image))
        moments.add(image[None])
        edges.add(image[None])
        return (image.shape[0], image.shape[1], image.shape[2]), headers[file].depth, moments, edges

    shapes: Counter[tuple[int, ...]] = Counter()
    dtypes: Counter[str] = Counter()
    merged: dict[int, tuple[Moments, Edges]] = {}
    unreadable: dict[str, str] = {}
    missing, infinite = [], []
    with ThreadPoolExecutor(WORKERS) as pool:
        shown = tracked(files, "reading images", unit="images")
        for file, decoded in zip(shown, pool.map(decode, files), strict=True):
            if isinstance(decoded, str):
                unreadable[file] = decoded
                continue
            shape, dtype, moments, edges = decoded
            shapes[shape] += 1
            dtypes[dtype.name] += 1
            if (moments.count + moments.infinite < moments.seen).any():
                missing.append(file)
            if moments.infinite.any():
                infinite.append(file)
            whole = merged.setdefault(shape[0], (Moments(shape[0]), Edges(shape[0])))
            whole[0].merge(moments)
            whole[1].merge(edges)
    counts: Counter[int] = Counter()
    for size, n in shapes.items():
        counts[size[0]] += n
    usual = counts.most_common(1)[0][0] if counts else 0
    named = {headers[file].named: file for file in reversed(files) if file in headers}
    names, notes = _named(usual, bands, named)
    names_of = dict(zip(files, image_names(files), strict=True))
    return Images(
        names=tuple(name for file, name in names_of.items() if file not in unreadable),
        shapes=dict(shapes.most_common()),
        dtypes=dict(dtypes.most_common()),
        bands=names,
        statistics=merged[usual][0].statistics(names) if usual else None,
        unreadable=unreadable,
        missing=tuple(missing),
        infinite=tuple(infinite),
        suspects=merged[usual][1].suspects(names) if usual else (),
        duplicates=duplicates(root, files),
        notes=(*transparency_notes(len(declared), len(files), kept=alpha), *notes),
    )


def _headers(root: Path, files: Sequence[str]) -> dict[str, Header]:
    """The headers of the files that have a readable one."""

    def header(file: str) -> Header | None:
        try:
            return peek(root / file)
        except DataError:
            return None

    with ThreadPoolExecutor(WORKERS) as pool:
        pairs = zip(files, pool.map(header, files), strict=True)
        return {file: found for file, found in pairs if found is not None}


def _named(
    count: int, bands: Sequence[str] | None, named: Mapping[Named, str] = MappingProxyType({})
) -> tuple[tuple[str, ...], list[str]]:
    """Names for this number of bands, and a remark if those that are given do not fit."""
    if not count:
        return (), []
    try:
        return band_names(count, agreed(named, count) if bands is None else bands), []
    except DataError as error:
        return band_names(count), [str(error)]


def duplicates(root: Path, files: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of files with the same bytes; only files of the same length are compared."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for file in files:
        with contextlib.suppress(OSError):  # a broken link
            by_length[(root / file).stat().st_size].append(file)
    same: defaultdict[bytes, list[str]] = defaultdict(list)
    alike = [file for group in by_length.values() if len(group) > 1 for file in group]
    for file in tracked(alike, "looking for duplicates", unit="images"):
        with (root / file).open("rb") as opened:
            same[hashlib.file_digest(opened, "sha256").digest()].append(file)
    return tuple(sorted(tuple(group) for group in same.values() if len(group) > 1))


def _look_at_scenes(scenes: SceneDataset, bands: Sequence[str] | None) -> Images:
    """The same summary as `look_at_files`, for images that are not files of their own."""
    same: defaultdict[bytes, list[str]] = defaultdict(list)
    moments, edges = Moments(scenes.shape[0]), Edges(scenes.shape[0])
    rows, sampled = _worth_reading(scenes)
    step = max(1, CHUNK_VALUES // math.prod(scenes.shape))
    unreadable: dict[str, str] = {}
    missing: list[str] = []
    infinite: list[str] = []
    for start in tracked(range(0, len(rows), step), "reading images"):
        chunk, values = _readable(scenes, rows[start : start + step], unreadable)
        if not len(chunk):
            continue
        moments.add(values)
        edges.add(values)
        own = [scenes.names[row] for row in chunk]
        for which, flawed in zip((missing, infinite), flaws(values), strict=True):
            which += compress(own, flawed)
        for name, value in zip(own, values, strict=True):
            same[hashlib.sha256(value.tobytes()).digest()].append(name)
    names, notes = (scenes.bands, []) if bands is None else _named(len(scenes.bands), bands)
    return Images(
        names=tuple(name for name in scenes.names if name not in unreadable),
        shapes={scenes.shape: len(scenes) - len(unreadable)},
        dtypes={scenes.depth.name: len(scenes) - len(unreadable)},
        bands=names,
        statistics=moments.statistics(names) if len(unreadable) < len(rows) else None,
        unreadable=unreadable,
        missing=tuple(missing),
        infinite=tuple(infinite),
        suspects=edges.suspects(names),
        duplicates=tuple(sorted(tuple(group) for group in same.values() if len(group) > 1)),
        notes=(*scenes.notes, *sampled, *notes),
    )


def _readable(
    scenes: SceneDataset, rows: NDArray[np.int64], unreadable: dict[str, str]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Those of these rows that can be read, and their values; why the others cannot is noted."""
    try:
        return rows, scenes.gather(rows)
    except DataError as error:
        if len(rows) == 1:
            unreadable[scenes.names[rows[0]]] = str(error)
            return rows[:0], np.empty((0, *scenes.shape), scenes.dtype)
    halves = [_readable(scenes, half, unreadable) for half in np.array_split(rows, 2)]
    chunks, values = zip(*halves, strict=True)
    return np.concatenate(chunks), np.concatenate(values)


def _worth_reading(scenes: SceneDataset) -> tuple[NDArray[np.int64], list[str]]:
    """The rows whose values are looked at, and a sentence about it if they are not all."""
    each = math.prod(scenes.shape) * scenes.dtype.itemsize
    most = max(1, _MOST_READ // each)
    if len(scenes) <= most:
        return np.arange(len(scenes), dtype=np.int64), []
    rows = np.linspace(0, len(scenes) - 1, most).round().astype(np.int64)
    return rows, [f"only {most:,} of {len(scenes):,} images were read, evenly spread"]

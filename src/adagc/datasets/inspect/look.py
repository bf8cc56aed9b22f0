"""A look at data before work begins: what is there, and what will make trouble."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.inspect.record import (
    Images,
    Inspection,
    Labels,
    image_warnings,
    label_warnings,
    render,
)
from adagc.datasets.registry import DEFAULT, Recognised, registry
from adagc.errors import DataError
from adagc.images.base import SceneDataset
from adagc.images.cached import band_names
from adagc.images.decode import Shape, read_image
from adagc.images.moments import Moments
from adagc.images.normalisation import measure, unit_warnings
from adagc.images.progress import progress
from adagc.images.scan import find_images, image_names
from adagc.images.store.build import WORKERS
from adagc.labels import LabelTable, locate, read_labels

__all__ = ["Inspection", "duplicates", "inspect", "look_at_files", "render"]


def inspect(
    root: Path,
    *,
    labels: Path | LabelTable | None = None,
    truth: Path | LabelTable | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    bands: Sequence[str] | None = None,
) -> Inspection:
    """Decode everything once and report; nothing is written, and bad files do not stop it.

    Args:
        root: A folder of images, or a copy of any data set that recognises itself.
        labels: Observed labels to hold against the images.
        truth: Complete labels; None: the table of a published collection.
        size: Side length the images are going to be resized to.
        mean: Statistics of pretrained weights that are going to be used, one value per band.
        std: Likewise.
        bands: Names of the bands.
    """
    root = Path(root)
    found = _recognise(root)
    truth = found.truth if truth is None else truth
    if found.images is not None:
        images = _look_at_scenes(found.images(bands))
    else:
        images = look_at_files(found.place, find_images(found.place, found.folders), bands)
    observed, clean = _look_at_labels(labels, images.names), _look_at_labels(truth, images.names)
    warnings = image_warnings(images, size)
    if images.statistics is not None and mean is not None and std is not None:
        warnings += unit_warnings(images.statistics, images.bands, mean, std)
    warnings += [*label_warnings("labels", observed), *label_warnings("truth", clean)]
    return Inspection(str(root), found.kind, images, observed, clean, tuple(warnings))


def _recognise(root: Path) -> Recognised:
    """What is there; whichever data set was added last is asked first: it knows a special case."""
    for entry in reversed(registry().values()):
        found = entry.recognise(root)
        if found is not None:
            return found
    return Recognised(DEFAULT, root)


def look_at_files(root: Path, files: Sequence[str], bands: Sequence[str] | None = None) -> Images:
    """Decode every file once; statistics are of the values in the files, before any resizing."""
    if not files:
        raise DataError(f"{root}: no images found; check the path")
    alpha = bands is not None and len(bands) in (2, 4)

    def one(file: str) -> tuple[Shape, np.dtype[Any], Moments] | str:
        try:
            image: NDArray[Any] = read_image(root / file, alpha=alpha)
        except DataError as error:
            return str(error).removeprefix(f"{root / file}: ")
        moments = Moments(len(image))
        moments.add(image[None])
        return (image.shape[0], image.shape[1], image.shape[2]), image.dtype, moments

    shapes: Counter[tuple[int, ...]] = Counter()
    dtypes: Counter[str] = Counter()
    merged: dict[int, Moments] = {}
    unreadable: dict[str, str] = {}
    broken: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool, progress("reading images", len(files)) as advance:
        for file, seen in zip(files, pool.map(one, files), strict=True):
            advance(1)
            if isinstance(seen, str):
                unreadable[file] = seen
                continue
            shape, dtype, moments = seen
            shapes[shape] += 1
            dtypes[dtype.name] += 1
            if (moments.count < moments.seen).any():
                broken.append(file)
            merged.setdefault(shape[0], Moments(shape[0])).merge(moments)
    counts: Counter[int] = Counter()
    for size, n in shapes.items():
        counts[size[0]] += n
    usual = counts.most_common(1)[0][0] if counts else 0
    named = bands if bands is not None and len(bands) == usual else None
    names = band_names(usual, named) if usual else ()
    return Images(
        names=image_names([file for file in files if file not in unreadable]),
        shapes=dict(shapes.most_common()),
        dtypes=dict(dtypes.most_common()),
        bands=names,
        statistics=merged[usual].statistics(names) if usual else None,
        unreadable=unreadable,
        broken=tuple(broken),
        duplicates=duplicates(root, files),
    )


def duplicates(root: Path, files: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of files with the same bytes; only files of the same length are compared."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for file in files:
        by_length[(root / file).stat().st_size].append(file)
    same: defaultdict[bytes, list[str]] = defaultdict(list)
    for group in by_length.values():
        for file in group if len(group) > 1 else ():
            with (root / file).open("rb") as opened:
                same[hashlib.file_digest(opened, "sha256").digest()].append(file)
    return tuple(sorted(tuple(group) for group in same.values() if len(group) > 1))


def _look_at_scenes(scenes: SceneDataset) -> Images:
    same: defaultdict[bytes, list[str]] = defaultdict(list)
    broken = []
    for row, name in enumerate(scenes.names):
        values = scenes.gather(np.array([row], dtype=np.int64))
        if not np.isfinite(values).all():
            broken.append(name)
        same[hashlib.sha256(values.tobytes()).digest()].append(name)
    return Images(
        names=scenes.names,
        shapes={scenes.shape: len(scenes)},
        dtypes={scenes.dtype.name: len(scenes)},
        bands=scenes.bands,
        statistics=measure(scenes, np.arange(len(scenes), dtype=np.int64)),
        unreadable={},
        broken=tuple(broken),
        duplicates=tuple(sorted(tuple(group) for group in same.values() if len(group) > 1)),
    )


def _look_at_labels(source: Path | LabelTable | None, names: Sequence[str]) -> Labels | None:
    if source is None:
        return None
    table = source if isinstance(source, LabelTable) else read_labels(source)
    rows = locate(table, names, unknown="ignore")
    used = np.zeros(len(table), dtype=np.bool_)
    used[rows[rows >= 0]] = True
    positive = table.positive[used]
    cardinality = Counter(positive.sum(axis=1).tolist())
    return Labels(
        source=str(table.source or "label table"),
        counts=dict(zip(table.classes, positive.sum(axis=0).tolist(), strict=True)),
        cardinality=dict(sorted(cardinality.items())),
        images_without=tuple(names[i] for i in np.flatnonzero(rows < 0).tolist()),
        labels_without=tuple(table.images[i] for i in np.flatnonzero(~used).tolist()),
    )

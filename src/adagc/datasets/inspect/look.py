"""Check images and labels before training: what there is, and what will cause problems."""

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
    """Decode every image once and report; nothing is written, and unreadable files do not stop it.

    Args:
        root: A folder of images, an array file, or a copy of a published data set.
        labels: Observed labels to compare with the images.
        truth: Complete labels; None means the table that comes with a published data set, if any.
        size: Height and width in pixels that training will resize the images to; None: no check.
        mean: Mean of each band that the pretrained weights in use expect; None: no check.
        std: Standard deviation of each band that these weights expect.
        bands: Names of the bands.
    """
    root = Path(root)
    source = _recognise(root)
    truth = source.truth if truth is None else truth
    if source.images is not None:
        images = _look_at_scenes(source.images(bands))
    else:
        images = look_at_files(source.place, find_images(source.place, source.folders), bands)
    observed, clean = _look_at_labels(labels, images.names), _look_at_labels(truth, images.names)
    warnings = image_warnings(images, size)
    if images.statistics is not None and mean is not None and std is not None:
        warnings += unit_warnings(images.statistics, images.bands, mean, std)
    warnings += [*label_warnings("labels", observed), *label_warnings("truth", clean)]
    return Inspection(str(root), source.kind, images, observed, clean, tuple(warnings))


def _recognise(root: Path) -> Recognised:
    """Which data set is at this path; a plain folder of images if none recognises it.

    Data sets that were registered last are asked first, as they are the more special ones.
    """
    for entry in reversed(registry().values()):
        recognised = entry.recognise(root)
        if recognised is not None:
            return recognised
    return Recognised(DEFAULT, root)


def look_at_files(root: Path, files: Sequence[str], bands: Sequence[str] | None = None) -> Images:
    """Decode every file once and summarise what the files hold.

    The statistics are of the values in the files, before any resizing.

    Args:
        root: The folder.
        files: Paths relative to `root`.
        bands: Names of the bands; two or four names keep a band that is declared transparency.
    """
    if not files:
        raise DataError(f"{root}: no images found; check the path")
    alpha = bands is not None and len(bands) in (2, 4)

    def decode(file: str) -> tuple[Shape, np.dtype[Any], Moments] | str:
        """Shape, dtype and moments of one file, or why it cannot be read."""
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
        for file, decoded in zip(files, pool.map(decode, files), strict=True):
            advance(1)
            if isinstance(decoded, str):
                unreadable[file] = decoded
                continue
            shape, dtype, moments = decoded
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
    """The same summary as `look_at_files`, for images that are not files of their own."""
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
    """Count the labels of the images `names`; rows and images without a partner are listed."""
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

"""`predict`: from a model and an input to a file, or to arrays."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from adagc import tables
from adagc._version import __version__
from adagc.errors import UsageError, check_range
from adagc.limits import choose
from adagc.prediction.inputs import Cut, Input, Reading, open_input
from adagc.prediction.journal import MemoryRecords, Records
from adagc.prediction.maps import Mapped, write_map
from adagc.prediction.models import Given, batch_of, home_of, identity, open_model, opener
from adagc.prediction.results import Predicted, collect
from adagc.prediction.shared import fingerprint, folder_of, recorded
from adagc.prediction.work import Work, perform

MAPS = (".tif", ".tiff")


def predict(
    model: Given,
    source: Input,
    out: str | os.PathLike[str] | None = None,
    *,
    thresholds: str | None = None,
    bands: Sequence[str] | None = None,
    nodata: float | None = None,
    windows: Cut = "auto",
    window: int | None = None,
    stride: int | None = None,
    overlap: float | None = None,
    cell: int | None = None,
    values: Literal["probability", "decision"] = "probability",
    batch_size: int | None = None,
    workers: int = 1,
    skip_unreadable: bool = False,
) -> Predicted | Mapped | None:
    """Predict the classes of images, of rows of an array, or of the windows of a scene.

    A call that was killed is continued by the same call, with the same result.

    Example:
        >>> import numpy as np
        >>> from adagc import RunConfig, predict, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> run = train(config, "AN")
        >>> found = predict(run, np.zeros((5, 14, 16, 16), np.uint16))  # or the name of a file
        >>> found
        Predicted(5 images, 19 classes)
        >>> found.probabilities.shape, found.table()["image"][0], len(found.labels)
        ((5, 19), '00000', 5)

    Args:
        model: A finished run or an exported model, or the folder of one.
        source: An image, a folder of images, an array (also an object), a store of decoded images,
            or a scene such as a GeoTIFF of any size.
        out: File to write. Its suffix says what: a table (.csv, .json, .parquet), polygons of
            windows (.parquet, .geojson, .gpkg), or a map of a scene (.tif). Without one the
            results are only returned.
        thresholds: From which probability on a class is predicted: "estimated" for the numbers
            that are stored in the model, "half", or a file with a threshold per class; by default
            what the model has.
        bands: Names of the bands of the input, in its order, if it does not name them itself.
        nodata: Number that stands for missing values, besides NaN and the one that a file names.
        windows: Whether to cut an image into windows: "auto" does that with TIFF files that have
            coordinates and are larger than the input of the model.
        window: Side of a window in pixels of the scene; windows are resized to the input of the
            model. By default that of the images of training, where it is known, else its size.
        stride: Pixels from one window to the next; by default the side of a window.
        overlap: Share of a window that overlaps the next one, in place of `stride`.
        cell: Side of a cell of a map, in pixels of the scene; by default the stride.
        values: What a map shows: a probability, or 1 where a class is decided and 0 elsewhere.
        batch_size: Images or windows that are predicted together.
        workers: Number of processes that share the work.
        skip_unreadable: Leave out image files that cannot be read.

    Returns:
        The results, or what is said of a map; None in all but the first of several processes.
    """
    began = time.monotonic()
    _check(out, stride, overlap, window, cell, workers, batch_size, values)
    place = home_of(model)
    path = None if out is None else Path(out)
    mapped = path is not None and path.suffix.lower() in MAPS
    if path is not None:
        check_out(path)
    opened_model = open_model(place)
    limits = choose(thresholds, opened_model.classes, opened_model.thresholds.tolist())
    reading = Reading(
        bands=bands, nodata=nodata, windows=windows, window=window, stride=stride,
        overlap=overlap, cell=cell, batch=batch_of(opened_model, batch_size),
        skip=skip_unreadable,
    )  # fmt: skip
    opened = open_input(source, opened_model, reading, mapped=mapped)
    work = Work(
        opened.source, opened_model.probabilities, len(opened_model.classes), reading.batch,
        opener(place),
    )  # fmt: skip
    if path is None:
        memory = MemoryRecords()
        perform(work, memory, workers=workers)
        found = collect(opened, work.results(memory), opened_model.classes, limits)
        return replace(found, seconds=time.monotonic() - began)
    if not mapped:
        tables.check_format(path, geometry=opened.placed)

    def write(records: Records) -> Predicted | Mapped:
        if mapped:
            assert opened.scene is not None
            return write_map(
                path, opened.scene, records, opened_model.classes, limits,
                decisions=values == "decision",
            )  # fmt: skip
        found = collect(opened, work.results(records), opened_model.classes, limits)
        tables.write(path, found.table())
        return replace(found, out=path)

    whole = (__version__, identity(place), opened_model.classes, opened.source.stamp, work.batch)
    with folder_of(path):
        written = recorded(path, fingerprint(*whole), work, write, workers=workers)
    return None if written is None else replace(written, seconds=time.monotonic() - began)


def check_out(path: Path) -> None:
    """Raise UsageError if the output cannot be written there, before any work is done for it."""
    if path.suffix.lower() not in MAPS:
        tables.check_format(path)
        return
    # Places are checked as those of tables are; the suffix is known.
    tables.check_format(path.with_suffix(".csv"))
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder: give a file to write")


def _check(
    out: object,
    stride: int | None,
    overlap: float | None,
    window: int | None,
    cell: int | None,
    workers: int,
    batch_size: int | None,
    values: str,
) -> None:
    if stride is not None and overlap is not None:
        raise UsageError("--stride and --overlap say the same: give one of them")
    check_range("stride", stride, 1)
    check_range("overlap", overlap, 0, 1, below=True)
    check_range("window", window, 1)
    check_range("cell", cell, 1)
    check_range("workers", workers, 1)
    check_range("batch_size", batch_size, 1)
    if Path(str(out)).suffix.lower() not in MAPS and (cell is not None or values == "decision"):
        raise UsageError("--cell and --values are for maps: give --out a name that ends in .tif")

"""`predict`: from a model and an input to a file, or to arrays."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from adagc import tables
from adagc._version import __version__
from adagc.errors import DataError, UsageError, check_range
from adagc.limits import Thresholds, choose
from adagc.prediction import shared
from adagc.prediction.inputs import Cut, Given, Opened, Reading, open_input
from adagc.prediction.journal import MemoryRecords
from adagc.prediction.maps import Mapped, write_map
from adagc.prediction.models import Model, batch_of, identity, open_model
from adagc.prediction.results import Predicted, collect
from adagc.prediction.work import perform, sizes

MAPS = (".tif", ".tiff")

log = logging.getLogger(__name__)


def predict(
    model: str | os.PathLike[str],
    source: Given,
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

    Args:
        model: Folder of a finished run, or of an exported model.
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
    place = Path(model)
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
    if path is None:
        memory = MemoryRecords()
        perform(opened_model, opened.source, memory, batch=reading.batch, place=place,
                workers=workers)  # fmt: skip
        found = collect(opened, memory, opened_model.classes, limits)
        return replace(found, seconds=time.monotonic() - began)
    if not mapped:
        tables.check_format(path, geometry=opened.scene is not None)
    with _folder_of(path):
        found_or_none = _to_file(
            path, opened_model, opened, reading, limits, place, workers,
            decisions=values == "decision",
        )  # fmt: skip
    if found_or_none is None:
        return None
    seconds = time.monotonic() - began
    if isinstance(found_or_none, Mapped):
        return replace(found_or_none, seconds=seconds)
    return replace(found_or_none, out=path, seconds=seconds)


def _to_file(
    path: Path,
    model: Model,
    opened: Opened,
    reading: Reading,
    limits: Thresholds,
    place: Path,
    workers: int,
    *,
    decisions: bool,
) -> Predicted | Mapped | None:
    """Predict what is left, and write the output if this is the first process."""
    source = opened.source
    many, world = len(source.counts) > 1, shared.world()
    if not many and shared.rank() > 0:
        return None
    journals = None
    if many:
        print_of = _fingerprint(model, source.stamp, reading.batch, place)
        journals = shared.Journals(path, print_of, sizes(source, len(model.classes)))
        if done := journals.continued:
            log.info("continued: %d of %d blocks are done", done, len(source.counts))
    records = journals or MemoryRecords()
    try:
        mine = range(shared.rank(), len(source.counts), world) if many else None
        perform(model, source, records, batch=reading.batch, place=place, workers=workers,
                mine=mine)  # fmt: skip
        if shared.rank() > 0:
            return None
        if journals is not None:
            journals.wait()
        written: Predicted | Mapped
        if path.suffix.lower() in MAPS:
            assert opened.scene is not None
            written = write_map(
                path, opened.scene, records, model.classes, limits, decisions=decisions
            )
        else:
            written = collect(opened, records, model.classes, limits)
            tables.write(path, written.table())
        if journals is not None:
            journals.remove()
        return written
    except DataError:
        if journals is not None:
            journals.remove()  # another input is other work
        raise
    finally:
        if journals is not None:
            journals.close()


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    """Make the folders of a file; those that were made disappear if nothing is written to them."""
    missing = [folder for folder in path.absolute().parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # something is in it: a journal, with which work goes on
                folder.rmdir()
        raise


def check_out(path: Path) -> None:
    """Raise UsageError if the output cannot be written there, before any work is done for it."""
    if path.suffix.lower() not in MAPS:
        tables.check_format(path)
        return
    # Places are checked as those of tables are; the suffix is known.
    tables.check_format(path.with_suffix(".csv"))
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder: give a file to write")


def _fingerprint(model: Model, stamp: tuple[object, ...], batch: int, place: Path) -> bytes:
    """What must stay the same for records to be used again."""
    whole = repr((__version__, identity(place), model.classes, stamp, batch))
    return hashlib.sha256(whole.encode(errors="surrogateescape")).digest()


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

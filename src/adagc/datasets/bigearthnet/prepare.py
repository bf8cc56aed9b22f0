"""`adagc prepare`: from published files to a store that trains fast.

Work is done in chunks, each of which is on the disk before a line of the journal says so. A process
that was killed therefore loses the chunks it was at, and the same command goes on with the others.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import append, replacing, write_json, write_text
from adagc.datasets.bigearthnet.layout import CLOUDY, METADATA, PLAN, STORE
from adagc.datasets.bigearthnet.maps import COUNTS, areas_of
from adagc.datasets.bigearthnet.opening import Copy, open_copy, require_layout
from adagc.datasets.bigearthnet.patches import write_arrays
from adagc.datasets.bigearthnet.store import (
    AREAS,
    INDEX,
    MOMENTS,
    Plan,
    StoreForm,
    read_plan,
)
from adagc.datasets.bigearthnet.writing import (
    CHUNK,
    Chunk,
    Work,
    Writer,
    Written,
    start_worker,
    write_chunk,
)
from adagc.errors import AdagcError, DataError, NoSpaceError, UsageError, check_range, flag
from adagc.images.bigearthnet import lmdb as databases
from adagc.images.bigearthnet.measured import RECORD
from adagc.images.bigearthnet.resample import DEFAULT, Resample
from adagc.images.bigearthnet.shards import PATCH_BYTES, allocate
from adagc.images.bigearthnet.sources import NativeSource
from adagc.images.store.place import locked
from adagc.progress import Meter, meter

_JOURNAL, _CHECKSUMS, _LOCK = "journal.jsonl", "checksums.part.npy", "lock"
LEFT_OUT: Final = "left_out.csv"
_SETTINGS: Final = ("form", "resample", "cloudy")  # of a plan: options of the command
_PARTS: Final = {"radar": "s1", "optical": "s2"}
_SMALL: Final = 700 + RECORD.itemsize  # bytes per patch of all other files, generously


@dataclass(frozen=True)
class Prepared:
    """What `prepare` has made."""

    folder: Path
    form: StoreForm
    patches: int  # in the store
    written: int  # of these, how many this call has written
    left_out: dict[str, str]  # patch -> why it could not be read
    seconds: float
    notes: tuple[str, ...]
    bands: str | None = None  # of the only half that is there, as `--bands` names them


def prepare(
    root: Path,
    out: Path,
    *,
    form: StoreForm = "memmap",
    workers: int = 1,
    resample: Resample = DEFAULT,
    cloudy: bool = False,
    strict: bool = False,
) -> Prepared:
    """Write a store, or go on with one that a call with the same settings has begun.

    Args:
        root: A published copy of BigEarthNet: GeoTIFF files or an LMDB store.
        out: Folder to write.
        form: memmap, which reads fastest, or lmdb, which keeps every band in its own resolution and
            can be read by other programs.
        workers: Number of processes.
        resample: How bands of 20 and 60 m are enlarged to 120 pixels per side.
        cloudy: Prepare also patches with snow, clouds or shadow.
        strict: Raise DataError at the end if patches could not be read.
    """
    check_range("workers", workers, 1)
    began = time.monotonic()
    layout = require_layout(root)
    if layout.form == "store":
        raise UsageError(f"{root} is prepared already: give the published files")
    copy = open_copy(layout, cloudy=cloudy)
    patches = copy.patches
    names = hashlib.sha256("\n".join((*patches.names, *patches.radar)).encode()).hexdigest()
    radar, optical = ("radar" in copy.halves), ("optical" in copy.halves)
    plan = Plan(form, resample, layout.version, len(patches), names, radar, optical, cloudy)
    parts = tuple(_PARTS[half] for half in _PARTS if half in copy.halves)
    size = len(patches) * (sum(databases.entry_sizes()) + 1024) * 5 // 4 + 2**24
    work = Work(out, form, resample, parts, len(patches), size)
    _check_place(out)
    if read_plan(out) is None:
        _check_room(out, work, len(patches))
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / _LOCK):
        _claim(out, plan)
        state = _State.open(out, len(patches))
        todo = state.todo()
        left = sum(min(CHUNK, work.count - start) for start in todo)
        _check_room(out, work, left)
        if form == "memmap" and todo:
            allocate(out, len(patches), parts)
        for done in _written(work, copy, todo, workers):
            state.note(done)
        bad = {patches.names[row]: reason for row, reason in sorted(state.bad.items())}
        bad |= copy.alone
        notes = _finish(out, copy, plan, state, workers, bad)
    finished = Prepared(
        out,
        form,
        len(patches) - len(state.bad),
        left,
        bad,
        time.monotonic() - began,
        tuple(notes),
        None if len(parts) > 1 else parts[0],
    )
    if strict and bad:
        raise DataError(
            f"{len(bad):,} of {finished.patches + len(bad):,} patches are not whole or cannot be"
            f" read, and were left out: see {out / LEFT_OUT}"
        )
    return finished


def _check_place(out: Path) -> None:
    """UsageError if this is no folder for a store: there is something else."""
    if out.is_dir():
        ours = (out / _LOCK).exists() or read_plan(out) is not None
        if ours or not any(out.iterdir()):
            return
    if out.exists():
        raise UsageError(f"{out} holds something else: choose another --out")


def _claim(out: Path, plan: Plan) -> None:
    """Note what is prepared in this folder; UsageError if that is something else already."""
    known = read_plan(out)
    if known is None:
        write_json(out / PLAN, plan.to_dict())
    elif known != plan:
        other = [flag(name) for name in _SETTINGS if getattr(known, name) != getattr(plan, name)]
        what = f"another {other[0]}" if other else "other patches than are here now"
        raise UsageError(f"{out} was begun with {what}: choose another --out, or delete it")


@dataclass(frozen=True)
class _Line:
    """A line of the journal: these patches are on the disk, but for those that cannot be read."""

    start: int
    count: int
    bad: dict[int, str]

    @classmethod
    def read(cls, text: str) -> _Line | None:
        """Read a line; None for the last one, if the process was killed while it was written."""
        try:
            start, count, bad = json.loads(text)
            return cls(int(start), int(count), {int(row): str(why) for row, why in bad})
        except (ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return json.dumps([self.start, self.count, sorted(self.bad.items())]) + "\n"


@dataclass
class _State:
    """What is written already: chunks, moments, checksums and patches that cannot be read."""

    folder: Path
    done: NDArray[np.bool_]  # which patches are on the disk, or cannot be read
    bad: dict[int, str]
    records: NDArray[np.void]
    checksums: NDArray[np.uint32]

    @classmethod
    def open(cls, folder: Path, count: int) -> _State:
        """Read the journal; what a finished store had to leave out is tried again."""
        lines: list[_Line] = []
        path = folder / _JOURNAL
        if path.exists():
            found = map(_Line.read, path.read_text(encoding="utf-8").splitlines())
            lines = [line for line in found if line is not None]
        if (folder / STORE).exists():
            lines = [line for line in lines if not line.bad]
        elif path.exists() and not path.read_bytes().endswith(b"\n"):
            append(path, b"\n")  # so that the line that was cut off does not spoil the next one
        done = np.zeros(count, dtype=np.bool_)
        for line in lines:
            done[line.start : line.start + line.count] = True
        if (folder / STORE).exists() and not done.all():
            (folder / STORE).unlink()
            write_text(path, "".join(map(str, lines)))
        records = _table(folder / MOMENTS, (count,), RECORD)
        checksums = _table(folder / _CHECKSUMS, (count, 2), np.dtype(np.uint32))
        bad = {row: why for line in lines for row, why in line.bad.items()}
        return cls(folder, done, bad, records, checksums)

    def todo(self) -> list[int]:
        """Where the chunks begin that are not written yet."""
        starts = range(0, len(self.done), CHUNK)
        return [start for start in starts if not self.done[start : start + CHUNK].all()]

    def note(self, done: Written) -> None:
        """Keep what is known of a chunk, and then say that it is done."""
        rows = slice(done.start, done.start + len(done.records))
        self.records[rows] = done.records
        self.checksums[rows] = done.checksums
        for table in (self.records, self.checksums):
            assert isinstance(table, np.memmap)
            table.flush()
        self.bad |= done.bad
        line = _Line(done.start, len(done.records), done.bad)
        append(self.folder / _JOURNAL, str(line).encode())


def _table(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.memmap[Any, Any]:
    """A .npy file of this shape, mapped for writing; made if it is not there."""
    if not path.exists():
        with replacing(path) as (file,):
            np.save(file, np.zeros(shape, dtype=dtype))
    return np.lib.format.open_memmap(path, mode="r+")


def _check_room(out: Path, work: Work, patches: int) -> None:
    """NoSpaceError if the patches that are still to be written do not fit on the disk."""
    if work.form == "lmdb":
        sizes = dict(zip(("s2", "s1"), databases.entry_sizes(), strict=True))
        each = sum(sizes[part] for part in work.parts) * 21 // 20  # and the pages of its tree
        needed = patches * each
    else:
        # Shards that are there have their space reserved.
        there = sum(path.stat().st_size for path in out.glob("s[12]-*.npy"))
        needed = work.count * PATCH_BYTES - there if patches else 0
    needed += patches * _SMALL
    place = next(folder for folder in (out, *out.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise NoSpaceError(
            f"{out} cannot be prepared: it needs {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB"
            " is free on its disk; free some space, or choose another --out"
        )


def _written(work: Work, copy: Copy, todo: list[int], workers: int) -> Iterator[Written]:
    """Write these chunks, and yield what became of each when it is on the disk."""
    total = sum(min(CHUNK, work.count - start) for start in todo)
    chunks = (_chunk(copy, start) for start in todo)
    with meter("preparing patches", total, unit="patches") as shown:
        began = time.monotonic()
        several = workers > 1 and len(todo) > 1
        written = _by_processes(work, chunks, workers) if several else _here(work, chunks)
        for done in written:
            yield done
            shown.advance(len(done.records))
            _tell_rate(shown, began)


def _chunk(copy: Copy, start: int) -> Chunk:
    patches = copy.patches
    rows = slice(start, start + CHUNK)
    own = np.arange(start, min(start + CHUNK, len(patches)), dtype=np.int64)
    source = copy.source.chosen(own)
    assert isinstance(source, NativeSource)
    return Chunk(start, source, patches.names[rows], patches.radar[rows])


def _tell_rate(shown: Meter, began: float) -> None:
    rate = shown.done / max(time.monotonic() - began, 1e-9)
    shown.update(
        shown.done, note=f"{shown.done:,.0f} of {shown.total:,.0f} patches, {rate:,.0f} per second"
    )


def _here(work: Work, chunks: Iterator[Chunk]) -> Iterator[Written]:
    writer = Writer(work)
    try:
        yield from map(writer.write, chunks)
    finally:
        writer.close()


def _by_processes(work: Work, chunks: Iterator[Chunk], workers: int) -> Iterator[Written]:
    if work.form == "lmdb":
        Writer(work).close()  # makes the store, so that workers find it
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), start_worker, (work,))
    waiting: set[Future[Written]] = set()
    try:
        while True:
            while len(waiting) < 2 * workers and (chunk := next(chunks, None)) is not None:
                waiting.add(pool.submit(write_chunk, chunk))
            if not waiting:
                return
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
    except BrokenProcessPool:
        raise AdagcError(
            "a worker process ended, perhaps for want of memory: the same command continues, with"
            " fewer --workers if it happens again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _finish(
    out: Path, copy: Copy, plan: Plan, state: _State, workers: int, bad: dict[str, str]
) -> list[str]:
    """Write what belongs to all patches, and say that the store is finished."""
    patches, layout = copy.patches, copy.layout
    _report(out, bad)
    good = np.ones(len(patches), dtype=np.bool_)
    good[list(state.bad)] = False
    rows = np.flatnonzero(good).astype(np.int64)
    if not len(rows):
        raise DataError(f"none of the {len(patches):,} patches can be read: see {out / LEFT_OUT}")
    notes = copy.notes
    if layout.maps is not None:
        areas, missing = areas_of(layout, patches, workers=workers, cache=out / COUNTS)
        with replacing(out / AREAS) as (file,):
            np.save(file, areas)
        if missing:
            notes.append(f"{missing:,} reference maps are missing or cannot be read")
    write_arrays(
        out / INDEX,
        patches.take(rows),
        rows=rows.astype(np.uint32),
        checksums=np.asarray(state.checksums)[rows],
    )
    for path, name in ((layout.metadata, METADATA), (layout.cloudy, CLOUDY)):
        if path is not None:
            with replacing(out / name) as (file,):
                file.write(path.read_bytes())
    write_json(
        out / STORE,
        {**plan.to_dict(), "in_store": len(rows), "left_out": len(bad), "notes": notes},
    )
    return notes


def _report(out: Path, bad: dict[str, str]) -> None:
    """Write which patches are left out, and why; no file if there are none."""
    if not bad:
        (out / LEFT_OUT).unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("patch", "reason"))
    writer.writerows(bad.items())
    write_text(out / LEFT_OUT, text.getvalue())


__all__ = ["LEFT_OUT", "Prepared", "prepare"]

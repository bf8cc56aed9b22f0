"""Patches in the LMDB store that reBEN's own converter writes, and writing such a store.

A key is the name of an optical or a radar patch, its value a safetensors file with one array per
band in its own resolution.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, MissingExtraError
from adagc.images.bigearthnet.bands import OPTICAL, RADAR, SIDES, block, stored
from adagc.images.bigearthnet.sources import NativeSource, checked

if TYPE_CHECKING:
    import lmdb

_DTYPES: dict[str, np.dtype[Any]] = {
    "U16": np.dtype("<u2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
# Of a band in a value: where it begins, its dtype, its shape, whether both are the usual ones.
# Under "" stands where the last one ends.
_Field = tuple[int, "np.dtype[Any]", tuple[int, ...], bool]


class Database:
    """An LMDB store that is read; a process may open each but once, so that all readers share it.

    Args:
        folder: Folder of the store, with data.mdb.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: tuple[int, lmdb.Environment] | None = None
        self._local = threading.local()

    @property
    def transaction(self) -> Any:
        """A read transaction of this thread of this process; LMDB may not be carried over a fork.

        What it gives is valid as long as the store is open.
        """
        with _opening:
            if self._open is None or self._open[0] != os.getpid():
                self._open = os.getpid(), _environment(self.folder)
            environment = self._open[1]
        held = getattr(self._local, "held", None)
        if held is None or held[0] is not environment:
            held = self._local.held = environment, environment.begin(buffers=True)
        return held[1]

    def keys(self) -> Iterator[str]:
        """The names of all patches, in alphabetical order."""
        for key in self.transaction.cursor().iternext(keys=True, values=False):
            yield bytes(key).decode()

    def close(self) -> None:
        """Close it until it is read again; nobody may be reading."""
        with _opening:
            if self._open is not None and self._open[0] == os.getpid():
                self._open[1].close()
            self._open = None


_opening = threading.RLock()
_databases: dict[Path, Database] = {}


def database(folder: Path) -> Database:
    """The LMDB store in this folder, which is opened when it is first read."""
    with _opening:
        return _databases.setdefault(folder.resolve(), Database(folder.resolve()))


def _environment(folder: Path, **how: Any) -> lmdb.Environment:
    """Open a store, by default for reading; DataError if it is damaged."""
    try:
        import lmdb
    except ImportError:
        raise MissingExtraError("lmdb, which reads and writes this store,", "reben") from None
    # No file is written beside a store that is only read: its disk may be read-only. Rows are read
    # at random, so that what lies behind them is not worth reading ahead.
    reading = {"readonly": True, "lock": False, "readahead": False, "create": False}
    try:
        return lmdb.open(str(folder), **{**reading, "max_readers": 512, **how})
    except lmdb.Error as error:
        raise DataError(f"{folder}: cannot be opened ({error}); copy the store again") from None


class LmdbSource(NativeSource):
    """Patches in an LMDB store.

    Args:
        folder: Folder of the store, with data.mdb.
        names: Name of each optical patch.
        radar: Name of each radar patch.
    """

    form = "LMDB with safetensors"

    def __init__(self, folder: Path, names: Sequence[str], radar: Sequence[str]) -> None:
        self._database = database(folder)
        self._names, self._radar = names, radar
        self._layouts: dict[bytes, Mapping[str, _Field]] = {}

    def chosen(self, rows: NDArray[np.int64]) -> LmdbSource:
        """See `Source.chosen`."""
        names, radar = ([own[row] for row in rows] for own in (self._names, self._radar))
        return LmdbSource(self._database.folder, names, radar)

    def patch(self, row: int, bands: Sequence[str]) -> list[NDArray[Any]]:
        """See `NativeSource.patch`."""
        values: list[NDArray[Any]] = []
        found: dict[str, tuple[memoryview, Mapping[str, _Field]]] = {}
        for band in bands:
            name = self._radar[row] if band in RADAR else self._names[row]
            if name not in found:
                found[name] = self._value(name)
            content, layout = found[name]
            if band not in layout:
                raise DataError(f"{name}: the store has no band {band} of it")
            start, dtype, shape, usual = layout[band]
            field: NDArray[Any] = np.ndarray(shape, dtype, content, start)
            values.append(field if usual else checked(field, band, name))
        return values

    def _value(self, name: str) -> tuple[memoryview, Mapping[str, _Field]]:
        """The value of a patch, and what lies where in it."""
        content = self._database.transaction.get(name.encode()) if name else None
        if content is None:
            raise DataError(f"{name or 'a patch'}: is not in {self._database.folder}")
        try:
            (length,) = struct.unpack_from("<Q", content)
            header = bytes(content[8 : 8 + length])
            layout = self._layouts.get(header)
            if layout is None:
                layout = self._layouts[header] = _layout(header)
            if len(content) < layout[""][0]:
                raise ValueError("it is cut off")
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{name}: its entry in {self._database.folder} is damaged ({error})"
            ) from None
        return content, layout

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_database": self._database.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._database = database(state["_database"])


def _layout(header: bytes) -> dict[str, _Field]:
    """What lies where in a safetensors file with this header; all patches have the same one."""
    fields: dict[str, _Field] = {}
    last = 0
    for band, entry in json.loads(header).items():
        if band == "__metadata__":
            continue
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        dtype, count = _DTYPES[entry["dtype"]], int(np.prod(shape))
        if end - begin != count * dtype.itemsize or begin < 0:
            raise ValueError(f"band {band} has another length than its shape")
        usual = band in SIDES and shape == (SIDES[band],) * 2 and dtype == stored(band)
        fields[band] = (8 + len(header) + begin, dtype, shape, usual)
        last = max(last, 8 + len(header) + end)
    fields[""] = (last, np.dtype(np.uint8), (), False)
    return fields


def encode(values: Mapping[str, NDArray[Any]]) -> bytes:
    """A safetensors file with these bands, byte for byte as the converter orders it."""
    header: dict[str, Any] = {}
    begin = 0
    for band in sorted(values):
        size = values[band].nbytes
        kind = next(k for k, dtype in _DTYPES.items() if dtype == values[band].dtype)
        header[band] = {
            "dtype": kind,
            "shape": list(values[band].shape),
            "data_offsets": [begin, begin + size],
        }
        begin += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [np.ascontiguousarray(values[band]).tobytes() for band in sorted(values)]
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def entry_sizes() -> tuple[int, int]:
    """Bytes that the entry of an optical and of a radar patch takes in a store, in whole pages."""
    sizes = [len(encode({b: v[0] for b, v in block(s, 1).items()})) for s in (OPTICAL, RADAR)]
    optical, radar = (-(-(size + 16) // 4096) * 4096 for size in sizes)
    return optical, radar


@contextmanager
def writing(folder: Path, size: int) -> Iterator[lmdb.Environment]:
    """A store that can be written to by several processes, each in transactions of its own.

    Args:
        folder: Folder of the store, which is made.
        size: Bytes that it may grow to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database(folder).close()
    environment = _environment(
        folder, readonly=False, lock=True, create=True, map_size=size, meminit=False
    )
    try:
        yield environment
    finally:
        environment.close()


__all__ = ["Database", "LmdbSource", "database", "encode", "entry_sizes", "writing"]

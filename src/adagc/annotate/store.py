"""The events of a labelling project in one SQLite file: added, never changed or deleted."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from filelock import FileLock, Timeout

from adagc.annotate.events import Event
from adagc.errors import BusyError, DataError, NoSpaceError

VERSION: Final = 2  # of the tables; the first had no gain
_MARK: Final = 0x61646763  # "adgc": tells our files from other SQLite files
_SCHEMA: Final = f"""
BEGIN;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    annotator TEXT NOT NULL,
    image TEXT NOT NULL,
    kind TEXT NOT NULL,
    candidates TEXT NOT NULL DEFAULT '[]',
    present TEXT NOT NULL DEFAULT '[]',
    absent TEXT NOT NULL DEFAULT '[]',
    key INTEGER,
    seconds REAL,
    undoes INTEGER REFERENCES events (number),
    request TEXT UNIQUE,
    gain REAL
);
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
PRAGMA application_id = {_MARK};
PRAGMA user_version = {VERSION};
COMMIT;
"""
_FIRST: Final = (
    "number, time, annotator, image, kind, candidates, present, absent, key, seconds, undoes"
)
_COLUMNS: Final = f"{_FIRST}, gain"
_UPDATE: Final = "BEGIN; ALTER TABLE events ADD COLUMN gain REAL; PRAGMA user_version = 2; COMMIT;"


class Store:
    """The file, open for writing by this process alone; several threads may use it.

    Others may read it meanwhile (`read_events`). The lock is a file beside it, which the system
    releases when this process ends, however it ends.

    Args:
        path: The file, which is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._alone = FileLock(path.with_suffix(".lock"), timeout=0)
        try:
            self._alone.acquire()
        except Timeout:
            raise self._busy() from None
        except OSError as error:
            raise DataError(
                f"{path} cannot be written ({error.strerror}); check its folder"
            ) from None
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._open()
        except sqlite3.Error as error:
            self._alone.release()
            raise self._explained(error) from None
        except DataError:
            self.close()
            raise

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA busy_timeout = 5000")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")  # an acknowledged label survives a power cut
        tables = run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not tables:
            self._database.executescript(_SCHEMA)
        if check_header(self._database, self.path) < VERSION:
            self._database.executescript(_UPDATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything is in it, and no other file is left beside it."""
        with self._lock:
            self._database.close()
        self._alone.release()

    def settings(self) -> dict[str, Any]:
        """What `settle` kept; empty for a new file."""
        with self._lock:
            return dict(_settings(self._database))

    def settle(self, **settings: Any) -> None:
        """Keep what must not differ when work goes on, such as the classes."""
        rows = [(name, json.dumps(value)) for name, value in settings.items()]
        self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def events(self) -> list[Event]:
        """All events in their order."""
        with self._lock:
            return _events(self._database)

    def requests(self) -> dict[str, int]:
        """The numbers of the events that a page named, by that name."""
        query = "SELECT request, number FROM events WHERE request IS NOT NULL"
        with self._lock:
            return dict(self._database.execute(query).fetchall())

    def add(self, events: Sequence[Event], request: str | None = None) -> None:
        """Add events, all or none; they are on the disk when this returns.

        Args:
            events: The events, with the numbers that follow those in the file.
            request: A name of the page for the first of them, of which there is only one.

        Raises:
            NoSpaceError: The disk is full; nothing was added.
        """
        rows = [
            (
                event.number, event.time, event.annotator, event.image, event.kind,
                _packed(event.candidates), _packed(event.present), _packed(event.absent),
                event.key, event.seconds, event.undoes, event.gain, None if place else request,
            )
            for place, event in enumerate(events)
        ]  # fmt: skip
        self._write(
            f"INSERT INTO events ({_COLUMNS}, request) VALUES ({', '.join('?' * 13)})", rows
        )

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany(statement, rows)
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise self._explained(error) from None

    def _explained(self, error: sqlite3.Error) -> Exception:
        """The error in plain words; it names the file."""
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return NoSpaceError(
                f"{self.path} cannot be written ({error}): free some space on its disk"
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return self._busy()
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return _foreign(self.path)
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
            return DataError(f"{self.path} cannot be written ({error}); check its folder")
        return error

    def _busy(self) -> BusyError:
        return BusyError(
            f"{self.path} is in use: another adagc annotate works on it; end that, or join it in"
            " your browser"
        )


def database_of(out: Path) -> Path:
    """The file of events beside a label file."""
    return out.with_suffix(".sqlite")


def read_events(path: Path) -> tuple[list[Event], dict[str, Any]]:
    """All events and the settings of a file, also while a server writes to it elsewhere.

    DataError if it is none of ours.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the label file that adagc annotate writes")
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            check_header(database, path)
            return _events(database), _settings(database)
        finally:
            database.close()
    except sqlite3.OperationalError as error:
        raise BusyError(f"{path} is in use ({error}): end adagc annotate first") from None
    except sqlite3.Error:
        raise _foreign(path) from None


def events_of(labels: Path) -> tuple[list[Event], tuple[str, ...]]:
    """The events and classes of a project, given its label file or its file of events."""
    database = labels if labels.suffix == ".sqlite" else database_of(labels)
    events, settings = read_events(database)
    return events, tuple(settings["classes"])


def check_header(database: sqlite3.Connection, path: Path) -> int:
    """The version of a file of events; DataError if this adagc does not understand it."""
    mark = database.execute("PRAGMA application_id").fetchone()[0]
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if mark != _MARK:
        raise _foreign(path)
    if not 1 <= version <= VERSION:
        raise DataError(f"{path} is of a newer adagc (format {version}): update adagc to use it")
    return version


def _foreign(path: Path) -> DataError:
    return DataError(f"{path} is not a file of adagc annotate: rename it, or choose another --out")


def _settings(database: sqlite3.Connection) -> dict[str, Any]:
    rows = database.execute("SELECT name, value FROM settings").fetchall()
    return {name: json.loads(value) for name, value in rows}


def _events(database: sqlite3.Connection) -> list[Event]:
    first = database.execute("PRAGMA user_version").fetchone()[0] < VERSION
    columns = f"{_FIRST}, NULL" if first else _COLUMNS
    rows = database.execute(f"SELECT {columns} FROM events ORDER BY number").fetchall()
    return [Event(*row[:5], *map(_unpacked, row[5:8]), *row[8:]) for row in rows]


def _packed(names: tuple[str, ...]) -> str:
    return json.dumps(names, ensure_ascii=False)


def _unpacked(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))

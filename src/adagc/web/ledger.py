"""Events in one SQLite file: on the disk before they are acknowledged, never changed or deleted."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from adagc.errors import BusyError, DataError, NoSpaceError


@dataclass(frozen=True)
class Form:
    """What the events of a file look like.

    Attributes:
        command: The command whose file it is, as people type it.
        mark: Number that tells its files from other SQLite files.
        columns: Name and SQL type of each column of the first version, besides `number` and
            `request`.
        later: Columns that came later, one with each version.
    """

    command: str
    mark: int
    columns: tuple[tuple[str, str], ...]
    later: tuple[tuple[str, str], ...] = ()

    @property
    def version(self) -> int:
        """Of the columns, counted from 1."""
        return 1 + len(self.later)

    def names(self, version: int) -> str:
        """The columns that a reader gets from a file of a version, for SQL."""
        first = ["number", *(name for name, _ in self.columns)]
        known, missing = self.later[: version - 1], self.later[version - 1 :]
        return ", ".join([*first, *(name for name, _ in known), *("NULL" for _ in missing)])

    def update(self, version: int) -> str:
        """SQL that adds what a file of an earlier version does not have, all or none."""
        added = "".join(
            f"ALTER TABLE events ADD COLUMN {name} {kind};\n"
            for name, kind in self.later[version - 1 :]
        )
        return f"BEGIN;\n{added}PRAGMA user_version = {self.version};\nCOMMIT;"

    @property
    def schema(self) -> str:
        """SQL that makes the tables, all or none."""
        columns = "".join(f"    {name} {kind},\n" for name, kind in (*self.columns, *self.later))
        return f"""
BEGIN;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
{columns}    request TEXT UNIQUE
);
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
PRAGMA application_id = {self.mark};
PRAGMA user_version = {self.version};
COMMIT;
"""


class Ledger:
    """The file, open for writing by this process alone; several threads may use it.

    Others may read it meanwhile (`reading`). The lock is a file beside it, which the system
    releases when this process ends, however it ends.

    Args:
        path: The file, which is created if it does not exist.
        form: What its events look like.
    """

    def __init__(self, path: Path, form: Form) -> None:
        self.path, self._form = path, form
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
        run("PRAGMA synchronous = FULL")  # what was acknowledged survives a power cut
        tables = run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not tables:
            self._database.executescript(self._form.schema)
        version = check_header(self._database, self.path, self._form)
        if version < self._form.version:
            self._database.executescript(self._form.update(version))

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
            return dict(settings_in(self._database))

    def settle(self, **settings: Any) -> None:
        """Keep what must not differ when work goes on, such as the classes."""
        rows = [(name, json.dumps(value)) for name, value in settings.items()]
        self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def requests(self) -> dict[str, int]:
        """The numbers of the events that a page named, by that name."""
        query = "SELECT request, number FROM events WHERE request IS NOT NULL"
        with self._lock:
            return dict(self._database.execute(query).fetchall())

    def rows(self) -> list[tuple[Any, ...]]:
        """The columns of all events, in their order."""
        with self._lock:
            return rows_in(self._database, self._form)

    def add_rows(self, rows: Iterable[tuple[Any, ...]], request: str | None = None) -> None:
        """Add events, all or none; they are on the disk when this returns.

        Args:
            rows: Their columns, with the numbers that follow those in the file.
            request: A name of the page for the first of them, of which there is only one.

        Raises:
            NoSpaceError: The disk is full; nothing was added.
        """
        names = self._form.names(self._form.version)
        marks = ", ".join("?" * (names.count(",") + 2))
        self._write(
            f"INSERT INTO events ({names}, request) VALUES ({marks})",
            [(*row, None if place else request) for place, row in enumerate(rows)],
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
            return _foreign(self.path, self._form)
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
            return DataError(f"{self.path} cannot be written ({error}); check its folder")
        return error

    def _busy(self) -> BusyError:
        return BusyError(
            f"{self.path} is in use: another adagc {self._form.command} works on it; end that, or"
            " join it in your browser"
        )


def database_of(out: Path) -> Path:
    """The file of events beside a label file."""
    return out.with_suffix(".sqlite")


@contextmanager
def reading(path: Path, form: Form) -> Iterator[sqlite3.Connection]:
    """A file of events, open to be read, also while a server writes to it elsewhere.

    DataError if it is none of this form.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; give the label file that adagc {form.command} writes"
        )
    # Where nobody writes it, the file alone is read: SQLite would leave two others beside it, and
    # cannot read it at all in a folder that is not to be written.
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{alone}", uri=True)
        try:
            check_header(database, path, form)
            yield database
        finally:
            database.close()
    except sqlite3.OperationalError as error:
        raise BusyError(f"{path} is in use ({error}): end adagc {form.command} first") from None
    except sqlite3.Error:
        raise _foreign(path, form) from None


def check_header(database: sqlite3.Connection, path: Path, form: Form) -> int:
    """The version of a file of events; DataError if this adagc does not understand it."""
    mark = database.execute("PRAGMA application_id").fetchone()[0]
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if mark != form.mark:
        raise _foreign(path, form)
    if not 1 <= version <= form.version:
        raise DataError(f"{path} is of a newer adagc (format {version}): update adagc to use it")
    return version


def _foreign(path: Path, form: Form) -> DataError:
    return DataError(
        f"{path} is not a file of adagc {form.command}: rename it, or choose another --out"
    )


def settings_in(database: sqlite3.Connection) -> dict[str, Any]:
    """What must not differ when work goes on."""
    rows = database.execute("SELECT name, value FROM settings").fetchall()
    return {name: json.loads(value) for name, value in rows}


def rows_in(database: sqlite3.Connection, form: Form) -> list[tuple[Any, ...]]:
    """The columns of all events, in their order."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    return list(database.execute(f"SELECT {form.names(version)} FROM events ORDER BY number"))


def packed(names: tuple[str, ...]) -> str:
    """Several names in one column."""
    return json.dumps(names, ensure_ascii=False)


def unpacked(text: str) -> tuple[str, ...]:
    """The names of a column that `packed` has made."""
    return () if text == "[]" else tuple(json.loads(text))

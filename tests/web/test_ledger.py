"""Records that an earlier version began are read as they are, and go on in the present form."""

from __future__ import annotations

import sqlite3

import pytest

from adagc.errors import DataError
from adagc.web.ledger import Form, Ledger, reading, rows_in

FIRST = Form("review", 7, (("time", "REAL"), ("image", "TEXT")))
SECOND = Form("review", 7, FIRST.columns, (("gain", "REAL"),))
THIRD = Form("review", 7, FIRST.columns, (*SECOND.later, ("why", "TEXT")))


def test_earlier_records_are_read_and_continued(tmp_path):
    path = tmp_path / "x.sqlite"
    with Ledger(path, FIRST) as ledger:
        ledger.add_rows([(1, 0.5, "a")], "request-1")
    with reading(path, THIRD) as database:  # nobody writes it meanwhile
        assert rows_in(database, THIRD) == [(1, 0.5, "a", None, None)]
    with Ledger(path, SECOND) as ledger:
        ledger.add_rows([(2, 0.7, "b", 1.5)], "request-2")
    with Ledger(path, THIRD) as ledger:
        ledger.add_rows([(3, 0.9, "c", None, "so")])
        assert ledger.rows() == [
            (1, 0.5, "a", None, None), (2, 0.7, "b", 1.5, None), (3, 0.9, "c", None, "so")
        ]  # fmt: skip
        assert ledger.requests() == {"request-1": 1, "request-2": 2}
    with pytest.raises(DataError, match="newer adagc"):
        Ledger(path, SECOND)


def test_what_was_added_is_on_the_disk_before_anybody_is_told(tmp_path):
    """FULL: the log is synchronised at every commit, so that no power cut takes an answer back."""
    path = tmp_path / "x.sqlite"
    with Ledger(path, FIRST) as ledger:
        ask = ledger._database.execute
        assert ask("PRAGMA synchronous").fetchone() == (2,)
        assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
        ledger.add_rows([(1, 0.5, "a")])
        with reading(path, FIRST) as other:  # readers do not stop whoever writes
            assert rows_in(other, FIRST) == [(1, 0.5, "a")]
            ledger.add_rows([(2, 0.6, "b")])


def test_a_form_makes_one_and_the_same_table_whichever_way(tmp_path):
    with Ledger(tmp_path / "new.sqlite", THIRD):
        pass
    with Ledger(tmp_path / "old.sqlite", FIRST):
        pass
    with Ledger(tmp_path / "old.sqlite", THIRD):
        pass
    columns = []
    for name in ("new", "old"):
        database = sqlite3.connect(tmp_path / f"{name}.sqlite")
        columns.append({row[1:3] for row in database.execute("PRAGMA table_info(events)")})
        database.close()
    assert columns[0] == columns[1]

"""Open a label file as text, or say in one line why it is not a text file in UTF-8."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from adagc.atomic import encoded
from adagc.errors import DataError, LabelFileError
from adagc.suggest import hint
from adagc.tables.reading import Source, parquet_files


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a UTF-8 file, with or without byte order mark; line ends are not changed.

    The whole file is read and checked at once, so that decoding cannot fail later. Of a Parquet
    file the columns that name rows and their labels are read, as if it were a label file.

    Raises:
        LabelFileError: The file is missing, a folder, not readable, not text or not UTF-8.
    """
    data = _columns(path) if parquet_files(path) else _read(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LabelFileError(f"{path} is UTF-16 text; save it as UTF-8 (in Excel: 'CSV UTF-8')")
    if data.startswith(b"PK\x03\x04"):
        raise LabelFileError(f"{path} is a workbook or zip archive, not text; save it as CSV UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise LabelFileError(
            f"{path}, line {_line(data, nul)}: NUL at byte {nul}, this is not a text file; "
            "give a CSV file, saved as UTF-8"
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabelFileError(
            f"{path}, line {_line(data, error.start)}: byte {error.start} "
            f"(0x{data[error.start]:02x}) is not UTF-8; save it as UTF-8"
        ) from None
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")


def _columns(path: Path) -> bytes:
    """The label file that the columns of a Parquet file are."""
    text = io.StringIO(newline="")
    try:
        csv.writer(text, lineterminator="\n").writerows(Source.at(path).label_rows())
    except DataError as error:
        raise LabelFileError(str(error)) from error
    return encoded(text.getvalue())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        folder = path.parent
        if not folder.is_dir():
            raise LabelFileError(
                f"{path}: there is no folder {str(folder)!r}; correct the path"
            ) from None
        existing = sorted(file.name for file in folder.iterdir() if file.is_file())
        raise LabelFileError(
            f"{path}: there is no such file" + (hint(path.name, existing) or "; correct the path")
        ) from None
    except IsADirectoryError:
        raise LabelFileError(f"{path} is a folder; give the label file inside it") from None
    except OSError as error:
        raise LabelFileError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions"
        ) from None


def _line(data: bytes, position: int) -> int:
    """The line (from 1) of the byte at a position; lines may end with LF, CR or both."""
    before = data[:position].replace(b"\r\n", b"\n")
    return 1 + before.count(b"\n") + before.count(b"\r")

"""Writing files: a file is replaced completely or stays as it was, and a full disk is explained."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from adagc.errors import NoSpaceError

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


@contextmanager
def replacing(*targets: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """Give files to write to, which take the place of the targets at the end of the block.

    Until then readers see the old files. If the block raises or the process is killed, the old
    files stay as they were. NoSpaceError if the disk is full.

    Args:
        targets: The files to replace, whose folders exist.
    """
    mark = uuid.uuid4().hex[:8]
    outputs: list[_Output] = []
    try:
        outputs.extend(
            _Output(path, path.with_name(f".{path.name}.{mark}.tmp")) for path in targets
        )
        yield cast("tuple[BinaryIO, ...]", tuple(outputs))
        for output in outputs:
            output.complete()
        for output in outputs:
            output.temporary.replace(output.target)
    except Exception as error:
        # An error of a library that was writing may be the consequence of a failed write.
        failed = next((output for output in outputs if output.failure is not None), None)
        cause = error if failed is None else failed.failure
        if not isinstance(cause, OSError):
            raise
        for output in outputs:
            output.discard()  # now, because the message says how much space is free
        number = min(len(outputs), len(targets) - 1)  # of a file that could not be opened
        target = targets[number] if failed is None else failed.target
        raise _named(cause, target, sum(output.size for output in outputs)) from None
    finally:
        for output in outputs:
            output.discard()


class _Output(io.RawIOBase):
    """A file under a temporary name.

    A failed write is not raised at once, because libraries that write from compiled code turn the
    error into another one or end the process. It is kept, further content is only counted, and
    `complete` raises it. So the message can say how large the whole file would have been.

    Args:
        target: Where the file will be in the end.
        temporary: Where it is until then.
    """

    def __init__(self, target: Path, temporary: Path) -> None:
        super().__init__()
        self.target, self.temporary = target, temporary
        self.size = 0  # bytes so far, whether they could be written or not
        self.failure: OSError | None = None
        self._file = temporary.open("xb", buffering=0)

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, content: Any) -> int:
        """Write all of the content, or count it if a write has failed."""
        with memoryview(content) as view, view.cast("B") as raw:
            self.size += len(raw)
            if self.failure is None:
                try:
                    _write_all(self._file, raw)
                except OSError as error:
                    self.failure = error
            return len(raw)

    def complete(self) -> None:
        """Make sure that all of it is on the disk; raise the error of a failed write."""
        if self.failure is None:
            # Without the flush a power cut could leave an empty file under the new name.
            os.fsync(self._file.fileno())
            self._file.close()
        else:
            raise self.failure

    def discard(self) -> None:
        """Delete the temporary file, if it still has that name."""
        self._file.close()
        self.temporary.unlink(missing_ok=True)


def append(path: Path, content: bytes) -> None:
    """Add content to the end of a file, which is created if need be; all of it or nothing.

    NoSpaceError if the disk is full.
    """
    try:
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                _write_all(file, memoryview(content))
                os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):
                    file.truncate(before)
                raise
    except OSError as error:
        raise _named(error, path, len(content)) from None


def _write_all(file: io.FileIO, content: memoryview) -> None:
    """Write all of the content, also where the system takes only a part at a time."""
    while len(content):
        content = content[file.write(content) :]


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically (see `replacing`)."""
    write_bytes(path, encoded(text))


def encoded(text: str) -> bytes:
    """The text in UTF-8; UnicodeEncodeError if it contains the name of a file that is not UTF-8.

    Where Python takes the names of files for ASCII (LC_ALL=C), those that are UTF-8 are restored.
    """
    raw = text.encode(errors="surrogateescape")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return text.encode()  # raises the error with the text in it
    return raw


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically (see `replacing`)."""
    with replacing(path) as (file,):
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically (see `replacing`)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def remove_leftovers(folder: Path, *, but: str) -> None:
    """Delete the temporary files that killed processes have left in a folder.

    The caller makes sure that nobody is writing in this folder at the moment.

    Args:
        folder: The folder; its subfolders are not searched.
        but: Name of a file that somebody may be writing nevertheless.
    """
    for path in folder.glob(".*.tmp"):
        found = _LEFTOVER.fullmatch(path.name)
        if found is not None and found["name"] != but:
            path.unlink(missing_ok=True)


def no_space(error: OSError, path: Path, needed: int | None = None) -> NoSpaceError | None:
    """The error for a file that does not fit on the disk; None if that is not the reason.

    Args:
        error: What the system said.
        path: The file that could not be written.
        needed: How many bytes were to be written, if that is known.
    """
    if error.errno not in _NO_SPACE:
        return None
    wanted = "" if needed is None else f"it needs {_amount(needed)}, and "
    if error.errno == errno.EDQUOT:
        reason, remedy = f"{wanted}your quota on this disk is used up", "delete files"
    elif error.errno == errno.EFBIG:
        import resource  # here, because it does not exist on every system

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        most = "its disk takes no file of this size"
        if limit != resource.RLIM_INFINITY:
            most = f"no file may have more than {_amount(limit)} (ulimit -f)"
        reason, remedy = f"{wanted}{most}", "raise the limit, or use another disk"
    else:
        folder = next((place for place in (path, *path.parents) if place.is_dir()), Path())
        free = _amount(shutil.disk_usage(folder).free)
        reason, remedy = f"{wanted}{free} is free on its disk", "free some space"
        if os.statvfs(folder).f_favail == 0:
            reason = "its disk takes no more files (df -i)"
    return NoSpaceError(f"{path} cannot be written: {reason}; {remedy}")


def _named(error: OSError, path: Path, needed: int) -> Exception:
    """The error to raise for a file that could not be written; it names the file."""
    known = None if error.filename is None else Path(error.filename).name
    if error.errno is not None and (known is None or _LEFTOVER.fullmatch(known)):
        error.filename = str(path)
    return no_space(error, path, needed) or error


def _amount(count: int) -> str:
    """A number of bytes in words: 412.3 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"

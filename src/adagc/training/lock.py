"""One process writes the files of a run; a second one is told which process that is.

The lock is a file in the folder of the run that the system holds for the process and releases when
the process ends, however it ends. On network disks this works across machines if the disk supports
locks, as NFS does since version 4; where it does not, there is a warning and no protection.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from adagc.atomic import remove_leftovers, write_json
from adagc.errors import BusyError

LOCK = "writer.lock"
HOLDER = "writer.json"  # who holds the lock; it remains if that process is killed
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
_REPORT = "report.html"  # written without the lock: a report of a run in training is welcome

log = logging.getLogger(__name__)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only process that writes into the folder of a run, which is created if need be.

    Temporary files that a killed process has left there are deleted.

    Raises:
        BusyError: If another process is writing; the message names it.
    """
    from filelock import FileLock, Timeout  # here, because reading a run does not need it

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{folder} is being written by {_holder(folder)}") from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        log.warning("%s is on a disk without locks: start no second process for this run", folder)
    try:
        for place in (folder, folder / "weights"):
            remove_leftovers(place, but=_REPORT)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        write_json(
            folder / HOLDER, {"process": os.getpid(), "host": platform.node(), "since": since}
        )
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def _holder(folder: Path) -> str:
    """The process that holds the lock, and what to do."""
    try:
        known = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return (
            f"process {known['process']} on {known['host']} since {known['since']}: wait until it"
            " has ended, or end it"
        )
    except (OSError, ValueError, LookupError, TypeError):  # it has only just begun
        return "another process: wait until it has ended"

"""The folder of a cache, and the lock that lets only one process build it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)


def open_folder(cache: Path | None, key: str) -> Path:
    """Make a writable folder for a cache.

    If it cannot be written to, a temporary folder is used, and a warning is logged.

    Args:
        cache: Folder that holds all caches; None for the default.
        key: Name of the folder of this cache.
    """
    base = Path(cache) if cache is not None else default_base()
    folder = base / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        folder = _temporary_base(base, error.strerror or str(error)) / key
        folder.mkdir(exist_ok=True)
    return folder


def default_base() -> Path:
    """The default folder of all caches: $ADAGC_CACHE, or ~/.cache/adagc if that is not set."""
    named = os.environ.get("ADAGC_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "adagc"


@functools.cache
def _temporary_base(base: Path, reason: str) -> Path:
    # the function is cached, so that there is one warning and one folder per process
    folder = Path(tempfile.mkdtemp(prefix="adagc-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log.warning(
        "%s cannot be written (%s): images are decoded again in every process; "
        "set ADAGC_CACHE to a writable folder",
        base,
        reason,
    )
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on this file during the block; it is also released if the process dies."""
    with path.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            # Some network disks cannot lock. Then two processes may build the same cache, which is
            # safe but wastes time.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield

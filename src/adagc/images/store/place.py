"""Where caches live, and who may build in them."""

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
    """A writable folder for this key; a temporary one, with a warning, if the place is not."""
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
    """$ADAGC_CACHE, else ~/.cache/adagc."""
    named = os.environ.get("ADAGC_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "adagc"


@functools.cache
def _temporary_base(base: Path, reason: str) -> Path:
    # cached by place: one warning and one folder per process
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
    """Hold the lock of this path; the system lets go of it when the process dies."""
    with path.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            # some network disks cannot lock; builds there are still safe, only done twice
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield

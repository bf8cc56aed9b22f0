"""Disks without space: a real one that is tiny, and a pretended one that fills up at a moment."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adagc import atomic


@contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of this size, mounted at a new folder; the test is skipped if that is not allowed."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk takes the rights of root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class FullDisk:
    """Lets a disk seem full from the n-th write of a file on; it writes half of that one.

    Args:
        monkeypatch: Restores the disk at the end of the test.
        name: The file whose writing fails; of any file if empty.
        number: How often a file of that name is written before, plus one.
        code: The error of the system.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        name: str = "",
        number: int = 1,
        code: int = errno.ENOSPC,
    ) -> None:
        self.full = False
        self._seen: set[str] = set()
        original = atomic._write_all

        def write(file, content: memoryview) -> None:
            if name in str(file.name) and str(file.name) not in self._seen:
                # Appended files are written under their own name, and each time counts.
                if str(file.name).endswith(".tmp"):
                    self._seen.add(str(file.name))
                nonlocal number
                number -= 1
                self.full = self.full or number == 0
            if self.full:
                original(file, content[: len(content) // 2])
                raise OSError(code, "No space left on device")
            original(file, content)

        monkeypatch.setattr(atomic, "_write_all", write)
        self._restore = lambda: monkeypatch.setattr(atomic, "_write_all", original)

    def free(self) -> None:
        """Make space."""
        self._restore()

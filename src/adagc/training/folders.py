"""Storage of the files of a run: a folder on disk, or memory for a run that writes nothing."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from adagc.atomic import append, encoded, replacing
from adagc.errors import AdagcError


class Folder(ABC):
    """Files by name, for example "weights/network-last.safetensors".

    A file that is replaced is replaced completely or stays as it was.
    """

    @property
    @abstractmethod
    def place(self) -> Path | None:
        """The path of the folder on disk; None if the files are kept in memory."""

    @property
    @abstractmethod
    def models(self) -> Path | MutableMapping[str, bytes]:
        """The folder in the form that `adagc.models` takes: a path, or a mapping of contents."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""

    @abstractmethod
    def names(self, under: str) -> list[str]:
        """The names of all files in a subfolder, sorted; each name begins with the subfolder."""

    @abstractmethod
    def opened(self, name: str) -> Path | BinaryIO:
        """A path or stream to read a file from.

        If there is no such file, this raises FileNotFoundError or reading does.
        """

    @abstractmethod
    def replacing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A stream to write to; it replaces the file if the block ends without an error."""

    @abstractmethod
    def append(self, name: str, content: bytes | str) -> None:
        """Add content to the end of a file, which is created if need be; text as UTF-8."""

    def claimed(self) -> AbstractContextManager[None]:
        """Be the only process that writes these files, during the block; BusyError if another is.

        With several ranks only the first one, which writes, needs it.
        """
        if self.place is None or not self.written_here:
            return nullcontext()
        from adagc.training.lock import writing

        return writing(self.place)

    @property
    def written_here(self) -> bool:
        """Whether this process writes files: on disk only the first rank, in memory every rank."""
        from adagc import ranks  # here, because it imports torch, which reading a run does not need

        return self.place is None or ranks.rank() == 0

    def path(self, name: str) -> Path:
        """The path of a file on disk; AdagcError if the files are kept in memory."""
        if self.place is None:
            raise AdagcError(f"{name or 'this run'} is in memory only: train with a folder (out)")
        return self.place / name

    def read(self, name: str) -> bytes:
        """The whole content of a file."""
        source = self.opened(name)
        return source.read_bytes() if isinstance(source, Path) else source.read()

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file, replacing what it contained; text is written as UTF-8."""
        with self.replacing(name) as target:
            target.write(_raw(content))

    def write_json(self, name: str, value: Any) -> None:
        """Write a value as indented JSON, replacing what the file contained."""
        self.write(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class DiskFolder(Folder):
    """A folder on disk, which all ranks share."""

    root: Path

    def __str__(self) -> str:
        return str(self.root)

    @property
    def place(self) -> Path:
        """The path of the folder."""
        return self.root

    @property
    def models(self) -> Path:
        """The path of the folder."""
        return self.root

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.root / name).exists()

    def names(self, under: str) -> list[str]:
        """The names of all files in a subfolder, sorted."""
        return [f"{under}/{path.name}" for path in sorted((self.root / under).glob("*"))]

    def opened(self, name: str) -> Path:
        """The path of a file, whether it exists or not."""
        return self.root / name

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """A temporary file beside the target, which it replaces at the end of the block."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as (temporary,):
            yield temporary

    def append(self, name: str, content: bytes | str) -> None:
        """Add content to the end of a file: all of it, or nothing if the disk is full."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        append(path, _raw(content))


@dataclass(frozen=True, eq=False)
class MemoryFolder(Folder):
    """Files in the memory of this process; every rank has its own."""

    content: dict[str, bytes] = field(default_factory=dict)  # by name

    def __str__(self) -> str:
        return "a run without a folder"

    @property
    def place(self) -> None:
        """None, because nothing is on disk."""
        return

    @property
    def models(self) -> MutableMapping[str, bytes]:
        """The contents of the files by name."""
        return self.content

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return name in self.content

    def names(self, under: str) -> list[str]:
        """All names that begin with this subfolder, sorted."""
        return sorted(name for name in self.content if name.startswith(f"{under}/"))

    def opened(self, name: str) -> BinaryIO:
        """A stream of the file's content; FileNotFoundError if there is none."""
        if name not in self.content:
            raise FileNotFoundError(name)
        return io.BytesIO(self.content[name])

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """A stream whose content replaces the file at the end of the block."""
        target = io.BytesIO()
        yield target
        self.content[name] = target.getvalue()

    def append(self, name: str, content: bytes | str) -> None:
        """Add content to the end of a file."""
        self.content[name] = self.content.get(name, b"") + _raw(content)


def _raw(content: bytes | str) -> bytes:
    return encoded(content) if isinstance(content, str) else content

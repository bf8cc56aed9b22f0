"""Where the files of a run are: a folder on disk, or memory for a run that writes nothing."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from adagc.atomic import replacing
from adagc.errors import AdagcError


class Folder(ABC):
    """Files by name ("weights/network-last.safetensors"), each written whole or not at all."""

    @property
    @abstractmethod
    def place(self) -> Path | None:
        """Where it lies on disk; None if it ends with this process."""

    @property
    @abstractmethod
    def models(self) -> Path | MutableMapping[str, bytes]:
        """Itself, in the form that `adagc.models` reads and writes."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def names(self, under: str) -> list[str]:
        """The files in a folder in it, sorted, with that folder before their names."""

    @abstractmethod
    def opened(self, name: str) -> Path | BinaryIO:
        """A file to read from; a FileNotFoundError comes at the latest when it is read."""

    @abstractmethod
    def replacing(self, name: str) -> AbstractContextManager[Path | BinaryIO]:
        """What to write to; it takes the file's place when all went well."""

    @abstractmethod
    def append(self, name: str, text: str) -> None:
        """Add to the end of a file."""

    @property
    def written_here(self) -> bool:
        """Whether this process writes it: on disk the first rank, in memory every one."""
        from adagc import ranks  # which imports torch: folders are also looked at without

        return self.place is None or ranks.rank() == 0

    def path(self, name: str) -> Path:
        """A file's place on disk."""
        if self.place is None:
            raise AdagcError(f"{name or 'this run'} is in memory only: train with a folder (out)")
        return self.place / name

    def read(self, name: str) -> bytes:
        """All of a file."""
        source = self.opened(name)
        return source.read_bytes() if isinstance(source, Path) else source.read()

    def write(self, name: str, content: bytes | str) -> None:
        """Replace a file."""
        raw = content.encode() if isinstance(content, str) else content
        with self.replacing(name) as target:
            if isinstance(target, Path):
                target.write_bytes(raw)
            else:
                target.write(raw)

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file."""
        self.write(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class DiskFolder(Folder):
    """A folder on disk."""

    root: Path

    def __str__(self) -> str:
        return str(self.root)

    @property
    def place(self) -> Path:
        """Where it lies."""
        return self.root

    @property
    def models(self) -> Path:
        """Its path."""
        return self.root

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.root / name).exists()

    def names(self, under: str) -> list[str]:
        """The files in a folder in it."""
        return [f"{under}/{path.name}" for path in sorted((self.root / under).glob("*"))]

    def opened(self, name: str) -> Path:
        """The path of a file."""
        return self.root / name

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A temporary file."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as (temporary,):
            yield temporary

    def append(self, name: str, text: str) -> None:
        """Add to the end of a file."""
        with (self.root / name).open("a", encoding="utf-8") as handle:
            handle.write(text)


@dataclass(frozen=True, eq=False)
class MemoryFolder(Folder):
    """Files that end with this process; every rank has its own."""

    content: dict[str, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        return "a run without a folder"

    @property
    def place(self) -> None:
        """Nowhere."""
        return

    @property
    def models(self) -> MutableMapping[str, bytes]:
        """Its content."""
        return self.content

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self.content

    def names(self, under: str) -> list[str]:
        """The files in a folder in it."""
        return sorted(name for name in self.content if name.startswith(f"{under}/"))

    def opened(self, name: str) -> BinaryIO:
        """A stream of the file."""
        if name not in self.content:
            raise FileNotFoundError(name)
        return io.BytesIO(self.content[name])

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """A stream."""
        target = io.BytesIO()
        yield target
        self.content[name] = target.getvalue()

    def append(self, name: str, text: str) -> None:
        """Add to the end of a file."""
        self.content[name] = self.content.get(name, b"") + text.encode()

"""Writing files atomically: a file is replaced completely or stays as it was."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(*targets: Path) -> Iterator[tuple[Path, ...]]:
    """Give temporary paths to write to, and rename them to the targets at the end of the block.

    Until then readers see the old files. If the block raises or the process is killed, the old
    files stay as they were.

    Args:
        targets: The files to replace, whose folders exist.
    """
    mark = uuid.uuid4().hex[:8]
    temporary = tuple(target.with_name(f".{target.name}.{mark}.tmp") for target in targets)
    try:
        yield temporary
        for source in temporary:
            # Without the flush a power cut could leave an empty file under the new name.
            with source.open("rb") as handle:
                os.fsync(handle.fileno())
        for source, target in zip(temporary, targets, strict=True):
            source.replace(target)
    finally:
        for source in temporary:
            source.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically (see `replacing`)."""
    with replacing(path) as (temporary,):
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically (see `replacing`)."""
    with replacing(path) as (temporary,):
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically (see `replacing`)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")

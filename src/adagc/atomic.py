"""Files are written whole or not at all."""

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
    """Temporary paths beside the targets that take their places when all went well.

    Whoever reads meanwhile finds the old files; after a failure or a kill they are still there.
    """
    mark = uuid.uuid4().hex[:8]
    temporary = tuple(target.with_name(f".{target.name}.{mark}.tmp") for target in targets)
    try:
        yield temporary
        for source in temporary:
            # Without the flush a power cut could leave the new name with nothing behind it.
            with source.open("rb") as handle:
                os.fsync(handle.fileno())
        for source, target in zip(temporary, targets, strict=True):
            source.replace(target)
    finally:
        for source in temporary:
            source.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one go."""
    with replacing(path) as (temporary,):
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a binary file in one go."""
    with replacing(path) as (temporary,):
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one go."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")

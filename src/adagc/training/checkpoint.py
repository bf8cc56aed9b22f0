"""Checkpoints: written whole or not at all, read without running anything they contain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from adagc.errors import AdagcError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it takes the place of `path` only when all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        # Without the flush a power cut could leave the new name with the old disk's content.
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one go."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values."""
    with replacing(path) as temporary:
        torch.save(state, temporary)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint; tensors and plain values only."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise AdagcError(f"{path} does not exist: start the run without --resume") from None
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise AdagcError(
            f"{path} cannot be read as a checkpoint ({reason}): delete it and start again"
        ) from error
    return state

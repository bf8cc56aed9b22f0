"""Checkpoints: written whole or not at all, read without running anything they contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from adagc.atomic import replacing
from adagc.errors import AdagcError


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values."""
    with replacing(path) as (temporary,):
        torch.save(state, temporary)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint; tensors and plain values only."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise AdagcError(f"{path} does not exist: start the run without --resume") from None
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AdagcError(
            f"{path} cannot be read as a checkpoint ({reason}): delete it and start again"
        ) from error
    return state

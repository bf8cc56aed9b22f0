"""Reading tensors from files without running code that such files may contain."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adagc.errors import AdagcError

_PICKLED = (".pth", ".pt", ".bin", ".ckpt")
_NESTED = ("state_dict", "model", "network")  # keys under which training scripts store weights


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a .safetensors, .pth, .pt, .bin or .ckpt file, and its metadata."""
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return read_safetensors(path)
    if suffix in _PICKLED:
        return read_pickled(path), {}
    raise AdagcError(
        f"{path} is not a file of weights: use .safetensors or one of {', '.join(_PICKLED)}"
    )


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a .safetensors file by name, and its metadata (empty if it has none)."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 not a dict
            return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise AdagcError(f"{path} cannot be read ({error}): copy or download it again") from error


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The state dict in a file written by torch.save, which may be nested in other settings."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise AdagcError(
            f"{path} holds more than tensors and is not read, since that could run code: save its "
            "state dict alone, best as .safetensors"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise AdagcError(f"{path} cannot be read ({reason}): copy or download it again") from error
    while isinstance(content, Mapping):
        inner = next((content[k] for k in _NESTED if isinstance(content.get(k), Mapping)), None)
        if inner is None:
            break
        content = inner
    tensors = (
        {str(k): v for k, v in content.items() if isinstance(v, Tensor)}
        if isinstance(content, Mapping)
        else {}
    )
    if not tensors:
        raise AdagcError(f"{path} holds no state dict: save network.state_dict() in it")
    return tensors

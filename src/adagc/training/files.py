"""YAML files of settings: variables filled in, one file standing on another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from adagc.errors import UsageError

_DEEPEST = 8  # files that may stand on one another


def read_settings(path: Path) -> dict[str, Any]:
    """A YAML file of settings; variables such as ${ADAGC_DATA} are filled in.

    `base: FILE` takes over the settings of another file, found from where this one lies, which
    this one overrules.
    """
    settings: dict[str, Any] = {}
    for file in reversed(chain(path)):
        settings |= read_file(file)
    settings.pop("base", None)
    return settings


def chain(path: Path) -> list[Path]:
    """The file and those it stands on, nearest first."""
    files = [path]
    while (base := read_file(files[-1]).get("base")) is not None:
        if len(files) > _DEEPEST:
            raise UsageError(f"{path} stands on itself: its base leads back to it")
        files.append(files[-1].parent / str(base))
    return files


def read_file(path: Path) -> dict[str, Any]:
    """What one file says by itself."""
    try:
        loaded = yaml.safe_load(os.path.expandvars(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): give a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} must hold settings, one `name: value` per line")
    return loaded

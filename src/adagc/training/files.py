"""YAML files of settings: variables filled in, one file based on another, options of methods.

A scenario is a folder with `scenario.yaml`, the settings that all methods share, and one
`<method>.yaml` for every method whose options differ from its defaults there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adagc.errors import UsageError
from adagc.methods import outline
from adagc.options import read, typed

SCENARIO = "scenario.yaml"
_DEEPEST = 8  # files that may be based on one another


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
    """The file and those it is based on, nearest first."""
    files = [path]
    while (base := read_file(files[-1]).get("base")) is not None:
        if len(files) > _DEEPEST:
            raise UsageError(f"{path} is based on itself: its base leads back to it")
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


def method_of(told: Any, where: Path) -> tuple[str, dict[str, Any]]:
    """Title and checked options of what a file says about its method: a name, or a block."""
    title, given = _block(told, where)
    see = f"adagc methods {title}"
    return title, typed(read(outline(title)), given, f"{where}: {title}", see)


def method_options(path: Path, title: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Title to options, of the method files beside a scenario and beside those it is based on.

    Args:
        path: The scenario.
        title: The only method that is asked for; what is said of others is not looked at.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for file in reversed(chain(path)):
        found |= options_in(file.parent, title)
    return found


def options_in(folder: Path, title: str | None = None) -> dict[str, Mapping[str, Any]]:
    """What the method files of a folder say; a method may be told its own options only."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(folder.glob("*.yaml")):
        own = None if path.name == SCENARIO else read_settings(path).get("method")
        if own is None or title not in (None, _block(own, path)[0]):
            continue
        others = sorted(map(str, read_file(path).keys() - {"base", "method"}))
        if others:
            raise UsageError(
                f"{path} sets {others[0]}, which all methods of a benchmark share: put it into"
                f" {SCENARIO}"
            )
        found |= [method_of(own, path)]
    return found


def _block(told: Any, where: Path) -> tuple[str, dict[str, Any]]:
    """Title and options, as they stand there."""
    block = {"title": told} if isinstance(told, str) else told
    title = block.get("title") if isinstance(block, dict) else None
    if not isinstance(title, str):
        raise UsageError(f"{where} does not say which method it is for: add method: title")
    return outline(title).title, {key: value for key, value in block.items() if key != "title"}

"""YAML files with settings of runs and options of methods.

Environment variables in a file are replaced by their values, and a file may be based on another.
A scenario is a folder with `scenario.yaml`, which has the settings that all methods share, and a
file `<method>.yaml` for every method whose options are not its defaults in this scenario.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from adagc.errors import UsageError
from adagc.methods import outline
from adagc.methods.told import TunedOn
from adagc.options import Option, convert, read, typed

SCENARIO = "scenario.yaml"
_TUNED_ON = Option("tuned_on", TunedOn)
_DEEPEST = 8  # bases that a file may have, directly or through others; more must be a circle


class MethodBlock(NamedTuple):
    """What files say about a method: `method: {title: LL-R, final: 0.3, tuned_on: noisy}`."""

    title: str
    options: dict[str, Any]  # after they were checked and converted
    tuned_on: TunedOn | None = None  # labels by which the options were chosen, if the file says so


def chain(path: Path) -> list[Path]:
    """The file, the file it is based on, the base of that one, and so on.

    With `base: FILE` a file takes over the settings of another one and can override them. The path
    is relative to the folder of the file that names it.
    """
    files = [path]
    while (base := read_file(files[-1]).get("base")) is not None:
        if len(files) > _DEEPEST:
            raise UsageError(f"{path} is based on itself: its base leads back to it")
        files.append(files[-1].parent / str(base))
    return files


def read_file(path: Path) -> dict[str, Any]:
    """The content of one YAML file without that of its base; UsageError if it has no settings.

    Variables such as ${ADAGC_DATA} are replaced by their values. Names may be spelt with dashes, as
    on the command line; the result has them with underscores.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        loaded = yaml.load(os.path.expandvars(text), _Loader)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): give a YAML file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8: save it as UTF-8") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply: write one `name: value` per line") from None
    except _TwiceError as error:
        place = f"{path}, line {error.line}"
        raise UsageError(f"{place}: {error.name} is set a second time; remove one") from None
    # Besides errors of its own, the library raises those of int(), datetime and others.
    except Exception as error:
        raise UsageError(f"{path}{_fault(error)}: correct it, or quote the value") from None
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} must contain settings, one `name: value` per line")
    return loaded


class _TwiceError(Exception):
    """A name is set twice; `line` is that of the second time."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(name)
        self.name, self.line = name, line


class _Loader(yaml.SafeLoader):
    """Refuses a name that is set twice, of which YAML keeps the last without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag.endswith(":str"):
                key.value = key.value.replace("-", "_")
                if key.value in seen:
                    raise _TwiceError(key.value, key.start_mark.line + 1)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _fault(error: Exception) -> str:
    """What is wrong with a YAML file, for a message that begins with its name."""
    mark = getattr(error, "problem_mark", None)
    place = "" if mark is None else f", line {mark.line + 1},"
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return f"{place} is not valid YAML ({' '.join(problem.split())})"


def method_of(told: Any, where: Path) -> MethodBlock:
    """A method and its options after they were checked and converted.

    Args:
        told: The value of `method` in a file: a title, or a block with a title and options.
        where: The file, for error messages.
    """
    title, given = _block(told, where)
    tuned_on = None
    if _TUNED_ON.name in given:
        tuned_on = convert(_TUNED_ON, given.pop(_TUNED_ON.name), f"{where}: {_TUNED_ON.name}")
    see = f"adagc methods {title}"
    options = typed(read(outline(title)), given, f"{where}: {title}", see)
    return MethodBlock(title, options, tuned_on)


def method_options(path: Path, title: str | None = None) -> dict[str, MethodBlock]:
    """The methods whose options a scenario sets, by title.

    They are read from the method files in the folder of the scenario and in those of its bases.

    Args:
        path: The scenario.yaml.
        title: Read the options of this method only; the files of others are not checked.
    """
    methods: dict[str, MethodBlock] = {}
    for file in reversed(chain(path)):
        methods |= options_in(file.parent, title)
    return methods


def options_in(folder: Path, title: str | None = None) -> dict[str, MethodBlock]:
    """The methods whose options the method files of one folder set, by title.

    Raises UsageError if there is no such folder, which would otherwise mean that all methods keep
    their defaults, or if a method file contains anything but the options of its method.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of method options, as adagc tune writes it")
    methods: dict[str, MethodBlock] = {}
    for path in sorted(folder.glob("*.yaml")):
        own = _named_by(path)
        if own is None or title not in (None, _block(own, path)[0]):
            continue
        others = sorted(map(str, read_file(path).keys() - {"base", "method"}))
        if others:
            raise UsageError(
                f"{path} sets {others[0]}, which all methods of a benchmark share: put it into"
                f" {SCENARIO}"
            )
        block = method_of(own, path)
        methods[block.title] = block
    return methods


def _named_by(path: Path) -> Any:
    """What a method file, or the method file it is based on, has under `method`; None if nothing.

    A scenario may name the method that `adagc train` takes. That makes no method file of a file
    that is based on it.
    """
    files = [read_file(file) for file in chain(path) if file.name != SCENARIO]
    return next((own["method"] for own in files if "method" in own), None)


def _block(entry: Any, where: Path) -> tuple[str, dict[str, Any]]:
    """Title and options of a method as the file has them, not checked."""
    block = {"title": entry} if isinstance(entry, str) else entry
    title = block.get("title") if isinstance(block, dict) else None
    if not isinstance(title, str):
        raise UsageError(f"{where} does not say which method it is for: add a line `method: TITLE`")
    return outline(title).title, {key: value for key, value in block.items() if key != "title"}

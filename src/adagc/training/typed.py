"""Values from YAML, checked and converted as the command line checks and converts its own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from adagc.errors import UsageError


def typed(kind: type, values: Mapping[str, Any], where: str, see: str) -> dict[str, Any]:
    """Arguments for a class, of the types its constructor declares: 3 becomes 3.0 for a float.

    Args:
        kind: A class with annotated arguments.
        values: Some of them.
        where: What an error names: a file, or a method.
        see: The command that explains them.
    """
    known = _hints(kind)
    for key, value in values.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"see  {see}"
            raise UsageError(f"{where} has no option {key!r}: {hint}")
        if value is None and NoneType not in get_args(known[key]):
            raise UsageError(f"{where}: {key} is empty: give a value, or leave it out")
    try:
        return dict(_parser(kind).parse_object(dict(values), defaults=False).as_dict())
    except ArgumentError as error:
        wrong = next((key for key in values if f'"{key}"' in str(error)), None)
        if wrong is None:
            raise UsageError(f"{where}: {' '.join(str(error).split())}") from None
        raise UsageError(
            f"{where}: {wrong} must be {_words(known[wrong])}, not {values[wrong]!r}"
        ) from None


@lru_cache(maxsize=64)
def _parser(kind: type) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, None)
    return parser


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    # A dataclass inherits fields whose types are names of another module.
    maker: Any = kind if is_dataclass(kind) else kind.__init__  # type: ignore[misc]
    hints = get_type_hints(maker)
    return {key: hint for key, hint in hints.items() if key not in ("return", "args", "kwargs")}


def _words(hint: Any) -> str:
    """A type, for people.

    >>> from typing import Literal
    >>> _words(Literal["random", "clean"] | None), _words(float), _words(list[str])
    ('random, clean or empty', 'a number', 'a list of words')
    """
    plain: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "a word",
        bool: "true or false",
        NoneType: "empty",
        list[str]: "a list of words",
    }
    if hint in plain:
        return plain[hint]
    parts = [part if isinstance(part, str) else _words(part) for part in get_args(hint)]
    if not parts:
        return str(hint)
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

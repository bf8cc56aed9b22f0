"""Options: read off a signature, and the one place that turns what somebody wrote into a value.

A word of the command line, a value of a YAML file, of a scenario and of a tuned file are all
converted here, so that the same text means the same everywhere and a mistake is answered with the
same sentence.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from adagc.errors import UsageError
from adagc.suggest import hint

REQUIRED: Any = inspect.Parameter.empty  # the default of an option that has none
_NOTHING = ("null", "none")  # how a word says None, where an option may be empty
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Choices:
    """Beside `str` in `Annotated`: names that are only known when somebody asks for them."""

    names: Callable[[], Collection[str]]


@dataclass(frozen=True)
class Option:
    """One thing that can be set.

    Args:
        name: As in the signature, with underscores.
        kind: Its resolved type hint.
        default: What it is if nobody says anything; REQUIRED if somebody must.
        help: What it means, from the docstring.
    """

    name: str
    kind: Any
    default: Any = REQUIRED
    help: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it may be, if they can be listed."""
        return tuple(name for part in _parts(self.kind) for name in _choices(part))

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return any(get_origin(part) in (list, tuple) for part in _parts(self.kind))

    @property
    def is_bool(self) -> bool:
        """Whether it is true or false."""
        return bool in _parts(self.kind)


@lru_cache(maxsize=256)
def read(source: Callable[..., Any]) -> Mapping[str, Option]:
    """The options of a class or function: its signature, explained by the Args of its docstring.

    A dataclass brings the fields of those it inherits from. `*args` and `**kwargs` are no options.
    """
    is_class = isinstance(source, type)
    maker: Any = source.__init__ if is_class and not is_dataclass(source) else source
    hints = get_type_hints(maker, include_extras=True)
    meaning: dict[str, str] = {}
    for part in reversed(source.__mro__) if isinstance(source, type) else (source,):
        meaning |= _documented(part.__dict__.get("__doc__") if is_class else part.__doc__)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = {
        name: Option(name, hints.get(name, Any), parameter.default, meaning.get(name, ""))
        for name, parameter in inspect.signature(maker).parameters.items()
        if name != "self" and parameter.kind not in variadic
    }
    return MappingProxyType(found)


def convert(option: Option, value: Any, called: str) -> Any:
    """The value that somebody meant, of the option's kind.

    Args:
        option: What is set.
        value: A word, several words, or what YAML made of them.
        called: How an error names the option: "--size", or a file and a key.
    """
    try:
        return _convert(option.kind, value)
    except _MismatchError:
        pass
    if value is None:
        raise UsageError(f"{called} is empty: give a value, or leave it out")
    near = hint(value, option.choices) if isinstance(value, str) else ""
    raise UsageError(f"{called} must be {in_words(option.kind)}, not {_shown(value)}{near}")


def typed(
    options: Mapping[str, Option], values: Mapping[str, Any], where: str, see: str
) -> dict[str, Any]:
    """Values by name, each of its option's kind; a name that is no option is refused.

    Args:
        options: What can be set.
        values: Some of it.
        where: What an error names: a file, or a method.
        see: The command that explains the options.
    """
    for key in values:
        if key not in options:
            near = hint(str(key), options) or f"; {see} lists them"
            raise UsageError(f"{where} has no option {str(key)!r}{near}")
    return {key: convert(options[key], value, f"{where}: {key}") for key, value in values.items()}


def in_words(kind: Any) -> str:
    """A type, for people.

    >>> in_words(Literal["random", "dominant", "clean"] | None), in_words(float)
    ('random, dominant or clean (or null for none)', 'a number')
    >>> in_words(list[str]), in_words(tuple[int, ...])
    ('a list of words', 'a list of whole numbers')
    """
    parts = _parts(kind)
    inner = " or ".join(_words(part) for part in parts if part is not NoneType)
    return f"{inner} (or null for none)" if NoneType in parts else inner


class _MismatchError(Exception):
    """A value is not of a kind."""


def _convert(kind: Any, value: Any) -> Any:
    parts = _parts(kind)
    if len(parts) == 1:
        return _convert_one(parts[0], value)
    word = value.lower() if isinstance(value, str) else ""
    if word in _NOTHING and NoneType in parts and not any(value in _choices(p) for p in parts):
        return None
    for part in parts:
        try:
            return _convert_one(part, value)
        except _MismatchError:
            continue
    raise _MismatchError


def _convert_one(kind: Any, value: Any) -> Any:
    """For a kind that is no union."""
    if kind is Any:
        return value
    if kind is NoneType:
        return _only(value is None, value)
    if names := _choices(kind):
        return _only(isinstance(value, str) and value in names, value)
    kind = _bare(kind)
    if get_origin(kind) in (list, tuple):
        return _sequence(kind, value)
    if kind is bool:
        return (
            _only(isinstance(value, bool), value) if not isinstance(value, str) else _truth(value)
        )
    if kind in (int, float):
        return _number(kind, value)
    if kind is str:
        # YAML reads a folder called 2018 as a number and 2018-06-01 as a date.
        return str(_only(not isinstance(value, bool | list | dict | NoneType), value))
    return _only(isinstance(value, kind), value)


def _number(kind: type[int] | type[float], value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _MismatchError
    try:
        if kind is int and isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+\s*", value):
            return int(value)  # exact, however long
        number = float(value)
    except (ValueError, OverflowError):
        raise _MismatchError from None
    if kind is float:
        return number
    return int(_only(number.is_integer(), value if isinstance(value, int) else number))


def _truth(word: str) -> bool:
    if word.lower() not in _TRUTH:
        raise _MismatchError
    return _TRUTH[word.lower()]


def _sequence(kind: Any, value: Any) -> Any:
    """A list as it is, or a text that spells one: `a b c`, `a,b,c` or `[a, b, c]`."""
    words = [value] if isinstance(value, int | float) else value
    if isinstance(value, str):
        text = value.strip()
        inside = text.removeprefix("[").removesuffix("]")
        apart = inside.split(",") if "," in text or text.startswith("[") else text.split()
        words = [word.strip().strip("'\"") for word in apart if word.strip()]
    if not isinstance(words, list | tuple):
        raise _MismatchError
    inner = [part for part in get_args(kind) if part is not Ellipsis]
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        if len(inner) != len(words):
            raise _MismatchError
        return tuple(_convert(part, word) for part, word in zip(inner, words, strict=True))
    items = (_convert(inner[0], word) for word in words)
    return tuple(items) if get_origin(kind) is tuple else list(items)


def _only(good: bool, value: Any) -> Any:
    if not good:
        raise _MismatchError
    return value


def _parts(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the kind itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _choices(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) is Annotated:
        marks = (mark for mark in get_args(kind)[1:] if isinstance(mark, Choices))
        return tuple(name for mark in marks for name in mark.names())
    return ()


def _words(kind: Any) -> str:
    if names := _choices(kind):
        return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    kind = _bare(kind)
    if get_origin(kind) in (list, tuple):
        several = {int: "whole numbers", float: "numbers", str: "words"}
        return f"a list of {several.get(get_args(kind)[0], 'values')}"
    single = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    return single.get(kind, getattr(kind, "__name__", str(kind)))


def _shown(value: Any) -> str:
    """Words of the command line as they were typed."""
    words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return repr(" ".join(value)) if words else repr(value)


def _documented(text: str | None) -> dict[str, str]:
    """Name to meaning, from the part `Args:` of a docstring."""
    lines = inspect.cleandoc(text or "").splitlines()
    if "Args:" not in lines:
        return {}
    found: dict[str, list[str]] = {}
    for line in _section(lines[lines.index("Args:") + 1 :]):
        name = re.match(r" {4}\*{0,2}(\w+)(?: \(.*?\))?: ?(.*)", line)
        if name:
            found[name[1]] = [name[2]]
        elif found:
            found[next(reversed(found))].append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _section(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if line and not line.startswith(" "):
            return
        yield line

"""Options: read from the signature of a class or function, and converted to their types.

Words of the command line and values of YAML files, scenarios and tuned files are all converted
here, so that the same text means the same everywhere and a mistake gets the same error message.
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
_NOTHING = ("null", "none")  # words that mean None, for options that may be None
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Choices:
    """Allowed words of an option `Annotated[str, Choices(...)]`, listed only when needed.

    For names that are not known when the module is imported, such as registered methods.
    """

    names: Callable[[], Collection[str]]


@dataclass(frozen=True)
class Option:
    """An option that can be set.

    Args:
        name: Its name in the signature, with underscores.
        kind: Its type, as the resolved type hint.
        default: Its value if it is not set; REQUIRED if it must be set.
        help: Its meaning, from the docstring.
    """

    name: str
    kind: Any
    default: Any = REQUIRED
    help: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it accepts; empty if any word or number may be given, or several."""
        return tuple(name for part in _parts(self.kind) for name in _choices(part))

    @property
    def is_list(self) -> bool:
        """Whether it takes a list of values."""
        return any(get_origin(part) in (list, tuple) for part in _parts(self.kind))

    @property
    def is_bool(self) -> bool:
        """Whether it is true or false."""
        return bool in _parts(self.kind)


@lru_cache(maxsize=256)
def read(source: Callable[..., Any]) -> Mapping[str, Option]:
    """The options of a class or function: its signature, explained by the Args of its docstring.

    A dataclass includes the fields it inherits. `*args` and `**kwargs` are not options.
    """
    is_class = isinstance(source, type)
    maker: Any = source.__init__ if is_class and not is_dataclass(source) else source
    hints = get_type_hints(maker, include_extras=True)
    meaning: dict[str, str] = {}
    for part in reversed(source.__mro__) if isinstance(source, type) else (source,):
        meaning |= _documented(part.__dict__.get("__doc__") if is_class else part.__doc__)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    options = {
        name: Option(name, hints.get(name, Any), parameter.default, meaning.get(name, ""))
        for name, parameter in inspect.signature(maker).parameters.items()
        if name != "self" and parameter.kind not in variadic
    }
    return MappingProxyType(options)


def convert(option: Option, value: Any, called: str) -> Any:
    """The value converted to the option's type; UsageError if that is not possible.

    Args:
        option: The option that is set.
        value: A word, several words, or a value read from YAML.
        called: Name of the option in error messages: "--size", or a file and a key.
    """
    try:
        return _convert(option.kind, value)
    except _MismatchError:
        pass
    if value is None:
        raise UsageError(f"{called} is empty: give a value, or leave it out")
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    known = option.choices or [n for part in _parts(option.kind) for n in _item_choices(part)]
    strange = [word for word in words if isinstance(word, str) and word not in known]
    near = hint(strange[0], known) if strange else ""
    raise UsageError(f"{called} must be {in_words(option.kind)}, not {_shown(value)}{near}")


def typed(
    options: Mapping[str, Option], values: Mapping[str, Any], where: str, see: str
) -> dict[str, Any]:
    """Values by name, each converted to its option's type; UsageError for an unknown name.

    Args:
        options: All options that can be set, by name.
        values: The values to convert, by name; options may be left out.
        where: Name of their source in error messages: a file, or a method.
        see: Command that lists the options, for error messages.
    """
    for key in values:
        if key not in options:
            near = hint(str(key), options) or f"; {see} lists them"
            raise UsageError(f"{where} has no option {str(key)!r}{near}")
    return {key: convert(options[key], value, f"{where}: {key}") for key, value in values.items()}


def in_words(kind: Any) -> str:
    """A type in words, for error messages and tables.

    >>> in_words(Literal["random", "dominant", "clean"] | None), in_words(float)
    ('random, dominant or clean (or null for none)', 'a number')
    >>> in_words(list[str]), in_words(tuple[int, ...])
    ('a list of words', 'a list of whole numbers')
    """
    parts = _parts(kind)
    inner = " or ".join(_words(part) for part in parts if part is not NoneType)
    return f"{inner} (or null for none)" if NoneType in parts else inner


class _MismatchError(Exception):
    """A value cannot be converted to the type of an option."""


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
    """Convert a value to a type that is not a union; raises _MismatchError."""
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
            return int(value)  # exact for numbers of any length, unlike a float
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
    """A list from a list, or from a text such as `a b c`, `a,b,c` or `[a, b, c]`."""
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
    """The members of a union, or the type itself if it is not a union."""
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


def _item_choices(kind: Any) -> tuple[str, ...]:
    """The words that the items of a list may be; empty if it is no list, or takes any."""
    kind = _bare(kind)
    return _choices(get_args(kind)[0]) if get_origin(kind) in (list, tuple) else ()


def _words(kind: Any) -> str:
    if names := _choices(kind):
        return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    if names := _item_choices(kind):
        return f"some of {', '.join(names)}"
    kind = _bare(kind)
    if get_origin(kind) in (list, tuple):
        several = {int: "whole numbers", float: "numbers", str: "words"}
        return f"a list of {several.get(get_args(kind)[0], 'values')}"
    single = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    return single.get(kind, getattr(kind, "__name__", str(kind)))


def _shown(value: Any) -> str:
    """A value for an error message; words of the command line as they were typed."""
    words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return repr(" ".join(value)) if words else repr(value)


def _documented(text: str | None) -> dict[str, str]:
    """Name to meaning, from the section `Args:` of a docstring."""
    lines = inspect.cleandoc(text or "").splitlines()
    if "Args:" not in lines:
        return {}
    meanings: dict[str, list[str]] = {}  # name to the lines of its explanation
    for line in _section(lines[lines.index("Args:") + 1 :]):
        first = re.match(r" {4}\*{0,2}(\w+)(?: \(.*?\))?: ?(.*)", line)
        if first:
            meanings[first[1]] = [first[2]]
        elif meanings:
            meanings[next(reversed(meanings))].append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in meanings.items()}


def _section(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if line and not line.startswith(" "):
            return
        yield line

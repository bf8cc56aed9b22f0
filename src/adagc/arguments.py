"""Command lines: the options of a command, its help text, and the values that were given.

Flags may be spelt with dashes or underscores, `--name value` or `--name=value`; settings that are
lists as several words, with commas or in brackets. Values are converted by `adagc.options`, like
those of YAML files.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from adagc.errors import UsageError
from adagc.options import REQUIRED, Option, convert
from adagc.suggest import hint


class Parser:
    """The options of one command.

    Args:
        command: Name of the command, as typed after `adagc`.
        about: What the command does, in a sentence or two; shown at the top of its help.
        example: A command line that works, shown at the end of its help.
    """

    def __init__(self, command: str, about: str, example: str) -> None:
        self._parser = _ArgumentParser(
            prog=f"adagc {command}",
            description=_plain(about),
            epilog=_plain(f"example: {example}"),
            allow_abbrev=False,  # a shortened flag is an error, with a suggestion
            add_help=False,
        )
        self._parser.add_argument("-h", "--help", action="help", help="Show this help and exit.")
        self._options: dict[str, Option] = {}  # by their names
        self._settings: set[str] = set()  # names of the options that files may set, too
        self._flags: dict[str, str] = {"--help": "help"}  # flag to name
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        self._usage = [f"adagc {command}"]

    def positional(self, name: str, kind: Any, text: str, default: Any = REQUIRED) -> None:
        """Add an argument without a flag; a list takes several words, each as it was typed."""
        option = Option(name, kind, default, text)
        count = ("+" if default is REQUIRED else "*") if option.is_list else None
        count = "?" if count is None and default is not REQUIRED else count
        self._options[name] = option
        shown = f"{name.upper()}{' ...' * option.is_list}"
        self._usage.append(shown if default is REQUIRED else f"[{shown}]")
        self._parser.add_argument(
            name, nargs=count, metavar=name.upper(), default=argparse.SUPPRESS, help=_help(option)
        )

    def option(self, name: str, kind: Any, default: Any, text: str) -> None:
        """Add `--name VALUE`; the default is REQUIRED if it must be given.

        A list takes its words as they were typed, because titles contain blanks and paths may
        contain commas.
        """
        self.add(Option(name, kind, default, text))
        self._settings.discard(name)

    def flag(self, name: str, text: str, *, group: str = "") -> None:
        """Add `--name` without a value: True if it is given, else False."""
        self._options[name] = Option(name, bool, False, text)
        self._place(group).add_argument(
            self._flag(name), dest=name, action="store_true", default=argparse.SUPPRESS,
            help=_plain(text),
        )  # fmt: skip

    def add(self, option: Option, *, group: str = "", prefix: str = "") -> None:
        """Add an option read from a signature; the prefix "method." makes it `--method.weight`.

        A list may also be written as in a YAML file: a,b,c or [a, b, c].
        """
        name = f"{prefix}{option.name}"
        self._options[name] = option
        self._settings.add(name)
        many: dict[str, Any] = {}
        if option.is_list:
            many = {"nargs": "+"}
        elif option.is_bool:
            many = {"nargs": "?", "const": "true"}
        if option.default is REQUIRED:
            self._usage.append(f"{self._flag(name)} {_metavar(option)}")
        self._place(group).add_argument(
            self._flag(name), dest=name, metavar=_metavar(option), default=argparse.SUPPRESS,
            help=_help(option), **many,
        )  # fmt: skip

    def mention(self, flag: str, metavar: str, text: str, *, group: str = "") -> None:
        """Show a flag in the help only; the caller removes it from the words before parsing."""
        self._place(group).add_argument(
            self._flag(flag), metavar=metavar, default=argparse.SUPPRESS, help=_plain(text)
        )

    def parse(
        self, words: Sequence[str], told: Mapping[str, Any] | None = None
    ) -> argparse.Namespace:
        """The values of all options, by name and of the right type; UsageError for a mistake.

        Args:
            words: The words of the command line after the command.
            told: Values from elsewhere (a file, say), which the words override.
        """
        self._parser.usage = _plain(" ".join([*self._usage, "[options]"]))
        given = vars(self._parser.parse_args(self._spelt(words)))
        values = dict(told or {})
        for name, option in self._options.items():
            flag = next((flag for flag, target in self._flags.items() if target == name), name)
            if name in given:
                value = _as_written(given[name]) if name in self._settings else given[name]
                values[name] = convert(option, value, flag)
            elif name not in values:
                if option.default is REQUIRED:
                    self._parser.error(f"{flag} is missing")
                values[name] = option.default
        return argparse.Namespace(**values)

    def _flag(self, name: str) -> str:
        flag = f"--{name.replace('_', '-')}"
        self._flags[flag] = name
        return flag

    def _place(self, group: str) -> argparse._ArgumentGroup | argparse.ArgumentParser:
        if not group:
            return self._parser
        if group not in self._groups:
            self._groups[group] = self._parser.add_argument_group(group)
        return self._groups[group]

    def _spelt(self, words: Sequence[str]) -> list[str]:
        """The words with every flag in its standard spelling; UsageError for an unknown flag."""
        spelt: list[str] = []
        for word in words:
            if word.startswith("--") and len(word) > 2:
                name, equals, value = word.partition("=")
                flag = name.replace("_", "-")
                if flag not in self._flags:
                    near = hint(flag, self._flags)
                    self._parser.error(f"there is no option {name}{near}")
                spelt.append(f"{flag}{equals}{value}")
            elif spelt and spelt[-1] in self._flags and re.match(r"-[\d.]", word):
                # argparse accepts -2 and -2.5 as numbers, but takes -1e-3 for a flag.
                option = self._options.get(self._flags[spelt[-1]])
                joined = option is not None and not option.is_list
                spelt[-1:] = [f"{spelt[-1]}={word}"] if joined else [spelt[-1], word]
            else:
                spelt.append(word)
        return spelt


class _ArgumentParser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, with clearer messages than argparse's."""

    def error(self, message: str) -> NoReturn:
        text = message
        if missing := re.match(r"the following arguments are required: (.*)", message):
            text = f"{missing[1]} is missing"
        elif bare := re.match(r"argument (.*?): expected (?:one|at least one) argument", message):
            text = f"{bare[1]} needs a value"
        elif extra := re.match(r"unrecognized arguments: (.*)", message):
            text = f"{extra[1]!r} is more than this command takes"
        elif valued := re.match(r"argument (.*?): ignored explicit argument (.*)", message):
            text = f"{valued[1]} takes no value, not {valued[2]}"
        remedy = "" if text.endswith("?") else f" (see {self.prog} --help)"
        raise UsageError(f"{text}{remedy}")


def _as_written(value: str | list[str]) -> str | list[str]:
    """Words that spell a list with commas or brackets as one text; other lists unchanged.

    A single word without blanks becomes a text too, so that `none` can mean that there is no list.
    """
    if isinstance(value, str):
        return value
    spelt = any("," in word or word.startswith("[") for word in value)
    return " ".join(value) if spelt or (len(value) == 1 and " " not in value[0]) else value


def _metavar(option: Option) -> str:
    """The placeholder of the value in a help text."""
    if choices := option.choices:
        return f"{{{','.join(choices)}}}"
    if option.is_bool:
        return "{true,false}"
    last = option.name.rpartition(".")[2].upper().replace("_", "-")
    return {int: "N", float: "X"}.get(_single(option.kind), last)


def _single(kind: Any) -> Any:
    return next((part for part in (int, float) if kind in (part, part | None)), None)


def _help(option: Option) -> str:
    default = option.default
    if default is REQUIRED or default is None or default == []:
        return _plain(option.help)
    shown = str(default).lower() if isinstance(default, bool) else default
    return _plain(f"{option.help} (default: {shown})")


def _plain(text: str) -> str:
    """The text with per cent signs doubled, because argparse takes them for placeholders."""
    return text.replace("%", "%%")

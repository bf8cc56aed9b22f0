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
from adagc.errors import flag as _flag
from adagc.options import REQUIRED, Option, convert
from adagc.suggest import closest


class Parser:
    """The options of one command.

    Args:
        command: Name of the command, as typed after `adagc`.
        about: What the command does, in a sentence or two; shown at the top of its help.
        example: A command line that works, shown below that; one line of a terminal.
    """

    def __init__(self, command: str, about: str, example: str) -> None:
        self._parser = _ArgumentParser(
            prog=f"adagc {command}",
            description=_plain(f"{about}\n\nexample:\n  {example}"),
            allow_abbrev=False,  # a shortened flag is an error, with a suggestion
            add_help=False,
            formatter_class=_Formatter,
        )
        self._parser._positionals.title = "arguments"
        self._options: dict[str, Option] = {}  # by their names
        self._settings: set[str] = set()  # names of the options that files may set, too
        self._positionals: set[str] = set()  # names of the options without a flag
        self._flags: dict[str, str] = {"--help": "help"}  # flag to name
        self._old: dict[str, str] = {}  # flag of earlier versions to the flag or name of today
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        self._help_in = ""  # the group in which the help lists itself: the last one
        self._usage = [f"adagc {command}"]

    def positional(
        self,
        name: str,
        kind: Any,
        text: str,
        default: Any = REQUIRED,
        *,
        group: str = "",
        old: str = "",
    ) -> None:
        """Add an argument without a flag; a list takes several words, each as it was typed.

        Args:
            name: Its name; help and messages show it in capital letters.
            kind: Its type.
            text: Its meaning.
            default: Its value if it is not given; REQUIRED if it must be.
            group: The heading in the help under which it is listed.
            old: An option, such as "--truth", by which it can still be given.
        """
        option = Option(name, kind, default, text)
        needed = default is REQUIRED and not old
        count = ("+" if needed else "*") if option.is_list else (None if needed else "?")
        self._options[name] = option
        self._positionals.add(name)
        if old:
            self._old[old] = name
            self._parser.add_argument(
                old, dest=old, default=argparse.SUPPRESS, help=argparse.SUPPRESS
            )
        shown = f"{name.upper()}{' ...' * option.is_list}"
        self._usage.append(shown if default is REQUIRED else f"[{shown}]")
        self._place(group).add_argument(
            name, nargs=count, metavar=name.upper(), default=argparse.SUPPRESS, help=_help(option)
        )

    def option(
        self, name: str, kind: Any, default: Any, text: str, *, group: str = "", old: str = ""
    ) -> None:
        """Add `--name VALUE`; the default is REQUIRED if it must be given.

        A list takes its words as they were typed, because titles contain blanks and paths may
        contain commas. `old` is another option, such as "--to", that still means the same.
        """
        self.add(Option(name, kind, default, text), group=group)
        self._settings.discard(name)
        if old:
            self._old[old] = _flag(name)

    def hidden(self, name: str, kind: Any) -> None:
        """Add `--name VALUE`, which the help does not show; None if it is not given."""
        self._options[name] = Option(name, kind | None, None)
        self._old[_flag(name)] = _flag(name)
        self._parser.add_argument(
            _flag(name), dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )

    def flag(self, name: str, text: str, *, group: str = "") -> None:
        """Add `--name` without a value: True if it is given, else False."""
        self._options[name] = Option(name, bool, False, text)
        self._place(group).add_argument(
            self._new(name), dest=name, action="store_true", default=argparse.SUPPRESS,
            help=_plain(text),
        )  # fmt: skip

    def add(self, option: Option, *, group: str = "", prefix: str = "", shown: bool = True) -> None:
        """Add an option read from a signature; the prefix "method." makes it `--method.weight`.

        A list may also be written as in a YAML file: a,b,c or [a, b, c]. The help lists only what
        is `shown`.
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
            self._usage.append(f"{_flag(name)} {_metavar(option)}")
        self._place(group).add_argument(
            self._new(name), dest=name, metavar=_metavar(option), default=argparse.SUPPRESS,
            help=_help(option) if shown else argparse.SUPPRESS, **many,
        )  # fmt: skip

    def mention(self, flag: str, metavar: str, text: str, *, group: str = "") -> None:
        """Show a flag in the help only; the caller removes it from the words before parsing."""
        self._place(group).add_argument(
            self._new(flag), metavar=metavar, default=argparse.SUPPRESS, help=_plain(text)
        )

    def remark(self, group: str, text: str) -> None:
        """Show a text below the heading of a group of options, which may be empty."""
        self._groups[group] = self._parser.add_argument_group(group, _plain(text))

    def parse(
        self, words: Sequence[str], told: Mapping[str, Any] | None = None
    ) -> argparse.Namespace:
        """The values of all options, by name and of the right type; UsageError for a mistake.

        Args:
            words: The words of the command line after the command.
            told: Values from elsewhere (a file, say), which the words override.
        """
        self._parser.usage = _plain(" ".join([*self._usage, "[options]"]))
        self._place(self._help_in).add_argument(
            "-h", "--help", action="store_true", help="Show this help and exit."
        )
        if {"-h", "--help"} & set(words):
            self._parser.print_help()
            raise SystemExit(0)
        given = vars(self._parser.parse_intermixed_args(self._spelt(words)))
        for old, name in self._old.items():
            if old in given and name in given:
                self._parser.error(f"{self._called(name)} is given twice: leave {old} out")
            elif old in given:
                given[name] = given.pop(old)
        values = dict(told or {})
        for name, option in self._options.items():
            if name in given:
                value = _as_written(given[name]) if name in self._settings else given[name]
                values[name] = convert(option, value, self._called(name))
            elif name not in values:
                if option.default is REQUIRED:
                    self._parser.error(f"{self._called(name)} is missing")
                values[name] = option.default
        return argparse.Namespace(**values)

    def _new(self, name: str) -> str:
        self._flags[_flag(name)] = name
        return _flag(name)

    def _called(self, name: str) -> str:
        """An option as messages write it: --name, or NAME if it has no flag."""
        return name.upper() if name in self._positionals else _flag(name)

    def _place(self, group: str) -> argparse._ArgumentGroup | argparse.ArgumentParser:
        self._help_in = group
        if not group:
            return self._parser
        if group not in self._groups:
            self._groups[group] = self._parser.add_argument_group(group)
        return self._groups[group]

    def _spelt(self, words: Sequence[str]) -> list[str]:
        """The words with every flag in its standard spelling; UsageError for an unknown flag."""
        spelt: list[str] = []
        for word in words:
            if re.match(r"--?[^\W\d]", word):
                name, equals, value = word.partition("=")
                flag = name.replace("_", "-")
                if flag not in (*self._flags, *self._old):
                    # Without dashes, which all options have in common: --jobs is not like --json.
                    names = {known.lstrip("-"): known for known in self._flags}
                    near = closest(flag.lstrip("-"), names)
                    meant = f"; did you mean '{names[near]}'?" if near else ""
                    self._parser.error(f"there is no option {name}{meant}")
                today = self._old.get(flag, flag)
                spelt.append(f"{today if today.startswith('--') else flag}{equals}{value}")
            elif spelt and spelt[-1] in self._flags and re.match(r"-[\d.]", word):
                # argparse accepts -2 and -2.5 as numbers, but takes -1e-3 for a flag.
                option = self._options.get(self._flags[spelt[-1]])
                joined = option is not None and not option.is_list
                spelt[-1:] = [f"{spelt[-1]}={word}"] if joined else [spelt[-1], word]
            else:
                spelt.append(word)
        return spelt


class _Formatter(argparse.HelpFormatter):
    """Leaves the example as it is, and writes `--seeds SEEDS ...` for lists, to fit a line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        about, *example = text.split("\n\n")
        return "\n\n".join([super()._fill_text(about, width, indent), *example])

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.nargs in ("+", "*"):
            return f"{action.metavar or default_metavar} ..."
        return super()._format_args(action, default_metavar)


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

"""What all commands share: parsers, one-line errors, JSON, quiet logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adagc.errors import UsageError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def make_parser(name: str, command: Callable[..., None], example: str) -> ArgumentParser:
    """A parser that says what the command's docstring says."""
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        prog=f"adagc {name}",
        description=command.__doc__,
        epilog=f"example: {example}",
        exit_on_error=False,
    )


def parse(parser: ArgumentParser, argv: list[str]) -> Namespace:
    """Options, or one line of what is wrong with them."""
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args([_as_spelt(parser, word) for word in argv])
    except ArgumentError as error:
        text = " ".join(str(error).split())
        raise UsageError(f"{text} (see {parser.prog} --help)") from None


def _as_spelt(parser: ArgumentParser, word: str) -> str:
    """--runs-per-job for --runs_per_job, as far as the parser knows no such word itself."""
    name, equals, value = word.partition("=")
    known = parser._option_string_actions
    other = f"--{name[2:].replace('-', '_')}"
    if name.startswith("--") and name not in known and other in known:
        return f"{other}{equals}{value}"
    return word


def quiet_start() -> None:
    """Log lines short and to stderr."""
    from adagc import console

    console.configure_logging()


def print_json(value: Any) -> None:
    """One object on stdout."""
    print(json.dumps(value, indent=1, default=str))

"""What all commands share: making a parser, printing JSON, setting up log lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adagc.arguments import Parser
from adagc.errors import UsageError, flag


def make_parser(name: str, command: Callable[..., None], example: str) -> Parser:
    """Make the parser of a command.

    Args:
        name: The word after `adagc`.
        command: The function that runs it; its docstring is the description in `--help`.
        example: A complete command line that `--help` shows.
    """
    return Parser(name, command.__doc__ or "", example)


def add_json(parser: Parser) -> None:
    """Add the flag --json, for programs that read the result."""
    parser.flag("json", "Print the result as one JSON object.")


def add_pack(parser: Parser, about: str) -> None:
    """Add the option --pack, the folder for results as small files."""
    parser.option("pack", str | None, None, about)


def check_folder(option: str, path: str | None) -> None:
    """Raise UsageError if no folder can be made at a path, before any work is done for it.

    Args:
        option: Name of the option as a Python identifier.
        path: Its value; None means "not given" and is always accepted.
    """
    if path is None:
        return
    if not path.strip():
        raise UsageError(f"{flag(option)} is empty: give a folder, or leave it out")
    above = next((place for place in (Path(path), *Path(path).parents) if place.exists()), Path())
    if not above.is_dir():
        raise UsageError(f"{above} is a file: choose another {flag(option)}")


def quiet_start() -> None:
    """Send log lines to stderr in a short form; stdout is left to the result."""
    from adagc import console

    console.configure_logging()


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; what JSON does not know is written as a string."""
    print(json.dumps(value, indent=1, default=str))

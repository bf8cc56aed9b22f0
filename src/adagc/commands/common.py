"""What all commands share: parsers, JSON, quiet logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from adagc.arguments import Parser


def make_parser(name: str, command: Callable[..., None], example: str) -> Parser:
    """A parser that says what the command's docstring says."""
    return Parser(name, command.__doc__ or "", example)


def add_json(parser: Parser) -> None:
    """The flag for programs that read the result."""
    parser.flag("json", "Print the result as one JSON object.")


def quiet_start() -> None:
    """Log lines short and to stderr."""
    from adagc import console

    console.configure_logging()


def print_json(value: Any) -> None:
    """One object on stdout."""
    print(json.dumps(value, indent=1, default=str))

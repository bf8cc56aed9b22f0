"""The command line of `adagc train`: the settings of a run and the options of the chosen method.

A YAML file given with --config holds the same names, and may name a file it is based on; the
command line wins over it. The resolved config.yaml of a run is such a file.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from adagc.errors import UsageError
from adagc.methods import find
from adagc.methods.base import Method
from adagc.training.config import RunConfig
from adagc.training.files import read_settings

DEFAULT = "AdaGC"


def train_parser(argv: list[str]) -> tuple[ArgumentParser, type[Method], list[str]]:
    """A parser for this method's options, the method, and the words left to parse."""
    argv, files = _take(argv, "--config")
    argv, names = _take(argv, "--method")
    settings: dict[str, Any] = {}
    for file in files:
        settings |= read_settings(Path(file))
    settings.pop("bench", None)  # what a benchmark wants to know of a scenario
    options = settings.pop("method", {})
    if isinstance(options, str):
        options = {"title": options}
    if not isinstance(options, Mapping):
        raise UsageError("method in the config must be a name, or a title with options")
    title = options.get("title", DEFAULT)
    method = find(names[-1] if names else title)
    # Options of another method than the one asked for on the command line do not apply.
    same = method is find(title)
    options = {k: v for k, v in options.items() if k != "title"} if same else {}

    parser = ArgumentParser(
        prog="adagc train",
        description="Train one method on one data set and leave a run folder with scores and a "
        f"report. Shown are the options of {method.title}; --method NAME chooses another, "
        "--config FILE.yaml reads settings from a file.",
        epilog="example: adagc train --data folder --root photos --labels labels.csv"
        " --method AdaGC --method.weight 5 --epochs 40 --out runs/first",
        exit_on_error=False,
    )
    parser.add_class_arguments(RunConfig, None)
    parser.add_class_arguments(method, "method")
    _describe_method(parser)
    parser.add_argument("--out", type=str, required=True, help="Run folder to make.")
    parser.add_argument("--resume", action="store_true", help="Continue an interrupted run.")
    parser.add_argument("--report", type=bool, default=True, help="Write report.html at the end.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    # Settings of files become words before those of the command line: checked alike, overruled.
    told = _as_words(parser, {**settings, **{f"method.{k}": v for k, v in options.items()}})
    return parser, method, [*told, *argv]


def split_options(options: Namespace, method: type[Method]) -> tuple[RunConfig, Method]:
    """The settings of the run and the method, built."""
    values = {name: options[name] for name in RunConfig.__dataclass_fields__}
    chosen = options.get("method")
    return RunConfig(**values), method(**(chosen.as_dict() if chosen else {}))


def _describe_method(parser: ArgumentParser) -> None:
    """The word itself is taken before parsing; jsonargparse would call it a file of options."""
    action = parser._option_string_actions.get("--method")
    if action is not None:
        action.metavar, action.help = "NAME", "The method: see  adagc methods."


def _take(argv: list[str], flag: str) -> tuple[list[str], list[str]]:
    """Remove every `flag VALUE` and `flag=VALUE`, and return the values."""
    rest, values = [], []
    words = iter(argv)
    for word in words:
        if word == flag:
            value = next(words, None)
            if value is None:
                raise UsageError(f"{flag} needs a value")
            values.append(value)
        elif word.startswith(f"{flag}="):
            values.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, values


def _as_words(parser: ArgumentParser, settings: Mapping[str, Any]) -> list[str]:
    """`--name value` for every setting that the parser knows; others are refused."""
    flags = ("resume", "json")  # of the command, not of the run
    known = [action.dest for action in parser._actions if action.dest not in flags]
    words = []
    for key, value in settings.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; see adagc train --help"
            raise UsageError(f"there is no setting {key!r}{hint}")
        # JSON is YAML: what the parser reads back is the value itself.
        words.append(f"--{key}={value if isinstance(value, str) else json.dumps(value)}")
    return words

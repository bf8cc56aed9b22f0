"""The command line of `adagc train`: the settings of a run and the options of the chosen method.

A YAML file given with --config may set the same names and may be based on another such file;
the command line overrides both. The config.yaml of a run is such a file, and so is the
scenario.yaml of a benchmark; the method files beside it are read as a benchmark reads them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc.arguments import Parser
from adagc.errors import AdagcError, UsageError, check_range, flag
from adagc.methods import DEFAULT, find, outline, outlines
from adagc.options import REQUIRED, Option, read, typed
from adagc.training.config import RunConfig
from adagc.training.files import SCENARIO, MethodBlock, chain, method_of, method_options, read_file
from adagc.training.settings import (
    DataSettings,
    LabelSettings,
    ModelSettings,
    Settings,
    require_labels,
)

if TYPE_CHECKING:
    from adagc.methods import Method

_FIRST, _OUTPUT = "for a first run", "output"
# Settings that a beginner needs; the help lists them first, in this order.
_NEEDED = ("labels", "truth", "data", "size", "epochs")
# Options of the command that are not settings of a run; files may set them, too.
_OWN = {
    "out": Option("out", str, REQUIRED, "Folder of the run, which is made and written to."),
    "report": Option("report", bool, True, "Write report.html into the run folder after training."),
}


@dataclass(frozen=True)
class Order:
    """What a command line of `adagc train` asks for; making one does not import torch."""

    config: RunConfig
    title: str
    options: dict[str, Any]
    out: str
    resume: bool
    report: bool
    json: bool

    def build(self) -> Method:
        """A new object of the method, with the options of the command line."""
        return find(self.title)(**self.options)


def parse_train(words: list[str]) -> Order:
    """Read a command line of `adagc train`, and the files that it names.

    Raises UsageError for anything that is not a setting of a run or an option of its method, and
    for values out of range.
    """
    words, files = _take(words, "--config")
    words, names = _take(words, "--method")
    paths = [Path(file) for file in files]
    settings, title, options = _read_files(paths, names[-1] if names else None, words)
    method = outline(title)
    _check_options(words, method)
    parser = _parser(method, named=bool(names))
    from_files = {**settings, **{f"method.{name}": value for name, value in options.items()}}
    values = vars(parser.parse(words, from_files))
    chosen = {name: values[f"method.{name}"] for name in read(method)}
    for name, (low, high) in method.ranges.items():
        check_range(f"method.{name}", chosen.get(name), low, high)
    config = RunConfig(**{field.name: values[field.name] for field in fields(RunConfig)})
    require_labels(config.labels, config.scheme)
    own = {name: values[name] for name in ("out", "resume", "report", "json")}
    return Order(config, title, chosen, **own)


def _check_options(words: list[str], method: type[Method]) -> None:
    """Raise UsageError for an option of another method, and name the methods that have it."""
    for word in words:
        name = word.partition("=")[0].removeprefix("--method.").replace("-", "_")
        if not word.startswith("--method.") or name in read(method):
            continue
        others = [title for title, other in outlines().items() if name in read(other)]
        if others:
            raise UsageError(
                f"{flag(f'method.{name}')} is no option of {method.title}, but of"
                f" {', '.join(others)}: name the method with --method"
            )


def _read_files(
    files: list[Path], asked: str | None, words: list[str]
) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Settings, title of the method, and its options, as the files give them.

    Args:
        files: YAML files; later ones override earlier ones.
        asked: The method that the command line names, if any; it overrides the files.
        words: The rest of the command line, which may ask to resume a run of some method.
    """
    known = {**read(RunConfig), **_OWN}
    settings: dict[str, Any] = {}
    from_file: MethodBlock | None = None
    shared = False  # whether it is a scenario that names the method
    for file in (file for path in files for file in reversed(chain(path))):
        own = read_file(file)
        block = own.pop("method", None)
        for name in ("base", "bench"):  # bench: settings of a benchmark, not of a run
            own.pop(name, None)
        settings |= typed(known, own, str(file), "adagc train --help")
        if block is not None:
            from_file, shared = method_of(block, file), file.name == SCENARIO
    told = asked or (from_file.title if from_file else _resumed(words, settings))
    title = outline(told or DEFAULT).title
    named = from_file.options if from_file and from_file.title == title else None
    if named is not None and not shared:
        return settings, title, named
    # The files name no method, or another one, whose options do not apply. If a file is a scenario,
    # the options are in the method file beside it, also those of the method that it names.
    options: dict[str, Any] = {}
    for path in files:
        scenario = next((file for file in chain(path) if file.name == SCENARIO), None)
        if scenario is not None:
            block = method_options(scenario, title).get(title)
            options |= {} if block is None else block.options
    return settings, title, options | (named or {})


def _resumed(words: list[str], settings: dict[str, Any]) -> str | None:
    """The method of the run that is to be resumed; None if none is, or if there is no such run.

    A run goes on as what it is, though the default was another when it began.
    """
    _, places = _take(words, "--out")
    out = places[-1] if places else settings.get("out")
    if "--resume" not in words or not out:
        return None
    from adagc.training.runs import Run

    with suppress(AdagcError, OSError):  # what is wrong with the folder is said later
        return Run(out).settings.method
    return None


def _parser(method: type[Method], *, named: bool) -> Parser:
    """The parser for a method, whose options the help lists if the command line names it."""
    parser = Parser(
        "train",
        "Train one method on one data set and write a run folder with scores and a report.",
        "adagc train photos/ --labels labels.csv --out runs/first",
    )
    known = read(RunConfig)
    parser.positional(
        "root", known["root"].kind, known["root"].help, known["root"].default, group=_FIRST,
        old="--root",
    )  # fmt: skip
    for name in _NEEDED:
        parser.add(known[name], group=_FIRST)
    parser.mention(
        "method", "NAME", f"Method to train, as listed by adagc methods. (default: {DEFAULT})",
        group=_FIRST,
    )  # fmt: skip
    parser.add(_OWN["out"], group=_FIRST)
    parser.flag("resume", "Continue the interrupted run in the folder of --out.", group=_FIRST)
    parser.mention(
        "config", "FILE",
        "YAML file with any of these settings, which the command line overrides: the config.yaml of"
        " a run repeats it; with a scenario.yaml the method gets the options of the <method>.yaml"
        " beside it. Several files may be given, each with --config; later ones override earlier"
        " ones.",
        group=_FIRST,
    )  # fmt: skip
    for group, options in _groups().items():
        for option in options:
            parser.add(option, group=group)
    if not named:
        parser.remark(
            "method",
            "The options of a method begin with --method, such as --method.force 0.5."
            " adagc methods NAME explains them, and adagc train --method NAME --help lists them.",
        )
    for option in read(method).values():
        parser.add(option, group=f"options of {method.title}", prefix="method.", shown=named)
    parser.add(_OWN["report"], group=_OUTPUT)
    parser.flag("json", "Print the result as one JSON object.", group=_OUTPUT)
    return parser


def _groups() -> dict[str, list[Option]]:
    """The other settings of a run, under the headings that the help shows."""
    known = read(RunConfig)
    labels = ["labels", "truth", *LabelSettings.__annotations__]
    data = [f.name for f in fields(DataSettings) if f.name not in labels]
    names = {
        "data": data,
        "labels": labels,
        "network": list(ModelSettings.__annotations__),
        "training": list(Settings.__annotations__),
        "scores": list(RunConfig.__annotations__),
    }
    listed = ("root", *_NEEDED)
    return {
        group: [known[name] for name in own if name not in listed] for group, own in names.items()
    }


def _take(words: list[str], flag: str) -> tuple[list[str], list[str]]:
    """Remove every `flag VALUE` and `flag=VALUE`, and return the values."""
    rest, values = [], []
    left = iter(words)
    for word in left:
        if word == flag:
            value = next(left, None)
            if value is None:
                raise UsageError(f"{flag} needs a value")
            values.append(value)
        elif word.startswith(f"{flag}="):
            values.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, values

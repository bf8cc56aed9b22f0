"""The command line of `adagc train`: the settings of a run and the options of the chosen method.

A YAML file given with --config holds the same names, and may name a file it is based on; the
command line wins over it. The resolved config.yaml of a run is such a file, and so is the
scenario.yaml of a benchmark, whose method files are read as a benchmark reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc.arguments import Parser
from adagc.errors import UsageError, check_range
from adagc.methods import find, outline
from adagc.options import REQUIRED, Option, read, typed
from adagc.training.config import RunConfig
from adagc.training.files import SCENARIO, chain, method_of, method_options, read_file
from adagc.training.settings import (
    DataSettings,
    LabelSettings,
    ModelSettings,
    Settings,
    require_labels,
)

if TYPE_CHECKING:
    from adagc.methods import Method

DEFAULT = "AdaGC"
_OUTPUT = "output"
# Options of the command itself that a file may set, too.
_OWN = {
    "out": Option("out", str, REQUIRED, "Folder of the run, which is made."),
    "report": Option("report", bool, True, "Write report.html when training is over."),
}


@dataclass(frozen=True)
class Order:
    """What a command line of `adagc train` asks for; nothing heavy is imported yet."""

    config: RunConfig
    title: str
    options: dict[str, Any]
    out: str
    resume: bool
    report: bool
    json: bool

    def build(self) -> Method:
        """The method, fresh."""
        return find(self.title)(**self.options)


def parse_train(words: list[str]) -> Order:
    """The command line, checked against the settings of a run and the options of its method."""
    words, files = _take(words, "--config")
    words, names = _take(words, "--method")
    told, title, options = _read_files([Path(file) for file in files], names[-1] if names else None)
    method = outline(title)
    parser = _parser(method)
    values = vars(parser.parse(words, {**told, **{f"method.{k}": v for k, v in options.items()}}))
    chosen = {name: values[f"method.{name}"] for name in read(method)}
    for name, (low, high) in method.ranges.items():
        check_range(f"method.{name}", chosen.get(name), low, high)
    config = RunConfig(**{field.name: values[field.name] for field in fields(RunConfig)})
    require_labels(config.labels, config.scheme)
    own = {name: values[name] for name in ("out", "resume", "report", "json")}
    return Order(config, title, chosen, **own)


def _read_files(files: list[Path], asked: str | None) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Settings, method and its options, as far as files tell; later files win."""
    known = {**read(RunConfig), **_OWN}
    settings: dict[str, Any] = {}
    told: tuple[str, dict[str, Any]] | None = None
    for file in (file for path in files for file in reversed(chain(path))):
        own = read_file(file)
        block = own.pop("method", None)
        for name in ("base", "bench"):  # the latter is what a benchmark wants to know
            own.pop(name, None)
        settings |= typed(known, own, str(file), "adagc train --help")
        told = told if block is None else method_of(block, file)
    title = outline(asked or (told[0] if told else DEFAULT)).title
    if told and told[0] == title:
        return settings, title, told[1]
    # Options of another method than the one asked for do not apply: what has a scenario for it?
    beside: dict[str, Any] = {}
    for path in files:
        scenario = next((file for file in chain(path) if file.name == SCENARIO), None)
        if scenario is not None:
            beside |= method_options(scenario, title).get(title, {})
    return settings, title, beside


def _parser(method: type[Method]) -> Parser:
    parser = Parser(
        "train",
        "Train one method on one data set and leave a run folder with scores and a report. Shown"
        f" are the options of {method.title}; --method NAME shows those of another.",
        "adagc train --data folder --root photos --labels labels.csv --method AdaGC"
        " --method.weight 5 --epochs 40 --out runs/first",
    )
    for group, options in _groups().items():
        for option in options:
            parser.add(option, group=group)
    group = f"method and options of {method.title}"
    parser.mention(
        "method", "NAME", f"Method to train, as listed by adagc methods. (default: {DEFAULT})",
        group=group,
    )  # fmt: skip
    for option in read(method).values():
        parser.add(option, group=group, prefix="method.")
    for option in _OWN.values():
        parser.add(option, group=_OUTPUT)
    parser.flag("resume", "Continue the interrupted run in the folder of --out.", group=_OUTPUT)
    parser.flag("json", "Print the result as one JSON object.", group=_OUTPUT)
    parser.mention(
        "config", "FILE",
        "YAML file with any of these settings, which the command line overrules; several are read"
        " in their order. The config.yaml of a run repeats it. With the scenario.yaml of a"
        " benchmark the method gets the options of the file <method>.yaml beside it, or its"
        " defaults if there is none.",
        group=_OUTPUT,
    )  # fmt: skip
    return parser


def _groups() -> dict[str, list[Option]]:
    """The settings under headings, each where a reader looks for it."""
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
    return {group: [known[name] for name in own] for group, own in names.items()}


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

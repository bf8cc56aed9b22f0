"""A scenario: which images, labels and network, which seeds, and what each method is told.

On disk it is a folder with `scenario.yaml` (the settings of a run, and a block `bench:` with what
only a benchmark needs) and one `<method>.yaml` for every method whose options differ from its
defaults. A scenario that stands on another one (`base: ../demo-random/scenario.yaml`) takes over
its `bench:` block, except for the title, and its method files too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adagc.datasets.registry import find as find_data
from adagc.errors import UsageError
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.files import chain, read_file, read_settings
from adagc.training.typed import typed

SHIPPED = Path(__file__).parents[1] / "configs"
_FILE = "scenario.yaml"


@dataclass(frozen=True)
class Scenario:
    """One row of the world: everything of a run but the method and the seed."""

    name: str
    title: str
    settings: Mapping[str, Any]  # of RunConfig
    seeds: tuple[int, ...] = (0, 1, 2)
    redraw: bool = True  # whether another seed also draws other labels
    paper: str | None = None  # the scenario of the paper whose values stand beside ours
    paper_note: str = ""  # on what data and with what network the paper's values were made
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by title of the method
    tuned: str = ""  # the folder that options were taken from instead

    def config(self, seed: int) -> RunConfig:
        """The settings of the run with this seed."""
        settings = {**self.settings, "seed": seed}
        if self.redraw and self.settings.get("labels") is None:
            settings["label_seed"] = seed
        return RunConfig(**settings)

    def told(self, title: str) -> dict[str, Any]:
        """The options of a method, defaults left out."""
        return dict(self.options.get(title, {}))

    def with_settings(self, **settings: Any) -> Scenario:
        """The same with other settings; None means: as it was."""
        changed = {key: value for key, value in settings.items() if value is not None}
        return replace(self, settings={**self.settings, **changed})

    def with_options(self, folder: Path) -> Scenario:
        """The same with what the method files of another folder say, as `tune` writes them."""
        found = _options(folder)
        if not found:
            raise UsageError(f"{folder} holds no options of methods: run  adagc tune  first")
        return replace(self, options={**self.options, **found}, tuned=str(folder))

    @property
    def summary(self) -> str:
        """What a reader of a table must know of how it was made, in one line."""
        config = self.config(self.seeds[0])
        parts = [
            f"{config.epochs} epoch{'s' * (config.epochs > 1)}",
            f"batches of {config.batch_size}",
            f"{config.scenes} training scenes"
            if "scenes" in find_data(config.data).options
            else "",
            f"{config.share:.0%} of the training images" if config.share < 1 else "",
            f"options tuned ({self.tuned})" if self.tuned else "",
        ]
        return ", ".join(part for part in parts if part)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """All settings, for the record."""
        return asdict(self.config(self.seeds[0]))


def shipped() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{_FILE}"))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or one in a folder or file of your own."""
    path = Path(name)
    if not path.is_file():
        # A folder of runs may have the name of a shipped scenario, too.
        places = (path / _FILE, SHIPPED / name / _FILE)
        path = next((place for place in places if place.is_file()), places[-1])
        if not path.is_file():
            close = difflib.get_close_matches(name, shipped(), n=1)
            hint = f"did you mean {close[0]}?" if close else "give a folder with scenario.yaml, or"
            raise UsageError(f"there is no scenario {name!r}: {hint} ({', '.join(shipped())})")
    settings = read_settings(path)
    settings.pop("bench", None)
    place = path.resolve().parent.name if path.name == _FILE else path.stem
    about: dict[str, Any] = {}
    options: dict[str, Mapping[str, Any]] = {}
    for file in reversed(chain(path)):
        # Everything is taken over but the name: two tables of one title would be mixed up.
        about |= {"title": place} | _about(file)
        options |= _options(file.parent)
    _check(path, settings, about)
    settings = typed(RunConfig, settings, str(path), "adagc train --help")
    about["seeds"] = _seeds(path, about.get("seeds", Scenario.seeds))
    return Scenario(name=place, settings=settings, options=options, **about)


def _about(path: Path) -> dict[str, Any]:
    about = read_file(path).get("bench") or {}
    if not isinstance(about, dict):
        raise UsageError(f"{path}: bench must hold settings of its own, such as title and seeds")
    return about


def _seeds(path: Path, told: Any) -> tuple[int, ...]:
    if not isinstance(told, list | tuple) or not told or not all(type(n) is int for n in told):
        raise UsageError(f"{path}: seeds must be a list of whole numbers, such as [0, 1, 2]")
    if len(set(told)) < len(told):
        raise UsageError(f"{path}: seeds has a number twice, which would count as two runs")
    return tuple(told)


def _check(path: Path, settings: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    fields = set(RunConfig.__dataclass_fields__) - {"seed"}
    for key in settings:
        if key not in fields:
            _unknown(path, str(key), fields)
    known = {"title", "seeds", "redraw", "paper", "paper_note"}
    for key in about:
        if key not in known:
            _unknown(path, f"bench: {key}", known)
    for key, kind in (("title", str), ("redraw", bool), ("paper", str), ("paper_note", str)):
        if key in about and about[key] is not None and not isinstance(about[key], kind):
            raise UsageError(f"{path}: bench: {key} must be a {kind.__name__}, not {about[key]!r}")
    unset = [
        f"{name} ({'the data' if key == 'root' else f'the file of {key}'})"
        for key, value in settings.items()
        if isinstance(value, str)
        for name in re.findall(r"\$\{(\w+)\}", value)
    ]
    if unset:
        raise UsageError(
            f"{path} asks for variables that are not set: {', '.join(unset)}; say where they are:"
            f" {unset[0].partition(' ')[0]}=PATH adagc ..."
        )


def _unknown(path: Path, key: str, known: set[str]) -> None:
    close = difflib.get_close_matches(key.rpartition(" ")[2], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
    raise UsageError(f"{path} has {key!r}, which a scenario does not know: {hint}")


def _options(folder: Path) -> dict[str, Mapping[str, Any]]:
    """What the method files of a folder say; a method may be told its own options only."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.name == _FILE:
            continue
        own = read_settings(path).get("method")
        if own is None:
            continue
        options = {"title": own} if isinstance(own, str) else own
        title = options.get("title") if isinstance(options, dict) else None
        if not isinstance(title, str):
            raise UsageError(f"{path} does not say which method it is for: add method: title")
        others = sorted(map(str, read_file(path).keys() - {"base", "method"}))
        if others:
            raise UsageError(
                f"{path} sets {others[0]}, which all methods of a benchmark share: put it into"
                f" {_FILE}"
            )
        found[find(title).title] = {key: value for key, value in options.items() if key != "title"}
    return found

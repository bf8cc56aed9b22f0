"""A scenario: which images, labels and network, which seeds, and what each method is told.

On disk it is a folder with `scenario.yaml` (the settings of a run, and a block `bench:` with what
only a benchmark needs) and one `<method>.yaml` for every method whose options differ from its
defaults. A scenario that stands on another one (`base: ../demo-random/scenario.yaml`) takes over
its `bench:` block, except for the title, and its method files too. Without `seeds:` in that block
a `seed:` of the settings is the only one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adagc.datasets.registry import find as find_data
from adagc.errors import UsageError
from adagc.options import Option, read, typed
from adagc.suggest import hint_or_list
from adagc.training.config import RunConfig
from adagc.training.files import SCENARIO, chain, method_options, options_in, read_file

SHIPPED = Path(__file__).parents[1] / "configs"
# What only a benchmark wants to know, as it stands under `bench:`; seeds have their own rules.
_ABOUT = {
    "title": Option("title", str),
    "seeds": Option("seeds", Any),
    "redraw": Option("redraw", bool),
    "paper": Option("paper", str | None),
    "paper_note": Option("paper_note", str),
}


@dataclass(frozen=True)
class Scenario:
    """Everything of a run but the method and the seed."""

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
        found = options_in(folder)
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
        return self.config(self.seeds[0]).to_dict()


def shipped() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{SCENARIO}"))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or one in a folder or file of your own."""
    path = Path(name)
    if not path.is_file():
        # A folder of runs may have the name of a shipped scenario, too.
        places = (path / SCENARIO, SHIPPED / name / SCENARIO)
        path = next((place for place in places if place.is_file()), places[-1])
        if not path.is_file():
            near = hint_or_list(name, shipped(), "shipped ones")
            raise UsageError(f"there is no scenario {name!r}, nor a folder with {SCENARIO}{near}")
    place = path.resolve().parent.name if path.name == SCENARIO else path.stem
    settings: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for file in reversed(chain(path)):
        own = read_file(file)
        # Everything is taken over but the name: two tables of one title would be mixed up.
        about |= {"title": place} | _about(file, own.pop("bench", None))
        for name in ("base", "method"):
            own.pop(name, None)
        settings |= typed(read(RunConfig), own, str(file), "adagc train --help")
    _check_variables(path, settings)
    usual = (settings.pop("seed"),) if "seed" in settings else Scenario.seeds
    about["seeds"] = _seeds(path, about.get("seeds", usual))
    return Scenario(name=place, settings=settings, options=method_options(path), **about)


def _about(path: Path, told: Any) -> dict[str, Any]:
    if not isinstance(told or {}, dict):
        raise UsageError(f"{path}: bench must hold settings of its own, such as title and seeds")
    return typed(_ABOUT, told or {}, f"{path}: bench", "adagc bench --help")


def _seeds(path: Path, told: Any) -> tuple[int, ...]:
    if not isinstance(told, list | tuple) or not told or not all(type(n) is int for n in told):
        raise UsageError(f"{path}: seeds must be a list of whole numbers, such as [0, 1, 2]")
    if len(set(told)) < len(told):
        raise UsageError(f"{path}: seeds has a number twice, which would count as two runs")
    return tuple(told)


def _check_variables(path: Path, settings: Mapping[str, Any]) -> None:
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

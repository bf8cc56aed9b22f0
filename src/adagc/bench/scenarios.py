"""A scenario: images, labels, network and seeds of a benchmark, and the options of each method.

On disk it is a folder with `scenario.yaml` (the settings of a run, and a block `bench:` with what
only a benchmark needs) and one `<method>.yaml` for every method whose options differ from its
defaults. A scenario that is based on another one (`base: ../demo-random/scenario.yaml`) inherits
its settings, its `bench:` block except for the title, and its method files. If the block has no
`seeds:`, but the settings have `seed:`, that is the only seed.

Every method keeps an average of its network's weights unless the scenario says `average: null`, so
that methods which have one of their own can be compared with the others. To update it takes 0.5 to
2.5 % of a training step on images and 8 % where only a head on features is trained. An epoch of the
demo takes a sixth more CPU time, nearly all of it for the second pass over the validation images.
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
from adagc.methods.told import TunedOn
from adagc.options import Option, read, typed
from adagc.suggest import hint_or_list
from adagc.training.config import RunConfig
from adagc.training.files import (
    SCENARIO,
    MethodBlock,
    chain,
    method_options,
    options_in,
    read_file,
)

AVERAGE = 0.999  # momentum of the averaged weights, if a scenario names none
SHIPPED = Path(__file__).parents[1] / "configs"
# The settings allowed under `bench:`; `seeds` is checked by `_seeds`.
_ABOUT = {
    "title": Option("title", str),
    "seeds": Option("seeds", Any),
    "redraw": Option("redraw", bool),
    "paper": Option("paper", str | None),
    "paper_note": Option("paper_note", str),
}


@dataclass(frozen=True)
class Scenario:
    """All settings of a benchmark's runs but the method and the seed."""

    name: str
    title: str
    settings: Mapping[str, Any]  # arguments of RunConfig
    seeds: tuple[int, ...] = (0, 1, 2)
    redraw: bool = True  # whether each seed also draws its own observed labels
    paper: str | None = None  # the scenario of the paper whose values tables show beside ours
    paper_note: str = ""  # on what data and with what network the paper's values were made
    methods: Mapping[str, MethodBlock] = field(default_factory=dict)  # those it has options for
    tuned: str = ""  # the folder with tuned options, if those are used

    def config(self, seed: int) -> RunConfig:
        """The settings of the run with this seed."""
        settings = {**self.settings, "seed": seed}
        if self.redraw and self.settings.get("labels") is None:
            settings["label_seed"] = seed
        return RunConfig(**settings)

    def told(self, title: str) -> dict[str, Any]:
        """The options that the scenario sets for a method; the others keep their defaults."""
        return dict(self.methods[title].options) if title in self.methods else {}

    def tuned_on(self, title: str) -> TunedOn | None:
        """Labels by which these options were chosen; None if the scenario does not say."""
        return self.methods[title].tuned_on if title in self.methods else None

    def with_settings(self, **settings: Any) -> Scenario:
        """A copy with these settings changed; a value of None changes nothing."""
        changed = {key: value for key, value in settings.items() if value is not None}
        return replace(self, settings={**self.settings, **changed})

    def with_options(self, folder: Path) -> Scenario:
        """A copy with the options in the method files of another folder, as `tune` writes them."""
        methods = options_in(folder)
        if not methods:
            raise UsageError(f"{folder} has no options of any method: run  adagc tune  first")
        return replace(self, methods={**self.methods, **methods}, tuned=str(folder))

    @property
    def summary(self) -> str:
        """The settings that a reader of a table must know, in one line."""
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
        """All settings of the run with the first seed, defaults included."""
        return self.config(self.seeds[0]).to_dict()


def shipped() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{SCENARIO}"))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or one in a folder or file of your own."""
    path = Path(name)
    if not path.is_file():
        # A folder without scenario.yaml, such as one of runs, may be named like a shipped scenario.
        places = (path / SCENARIO, SHIPPED / name / SCENARIO)
        path = next((place for place in places if place.is_file()), places[-1])
        if not path.is_file():
            near = hint_or_list(name, shipped(), "shipped ones")
            raise UsageError(
                f"there is no scenario {name!r}, and no folder of that name with a {SCENARIO}{near}"
            )
    place = path.resolve().parent.name if path.name == SCENARIO else path.stem
    settings: dict[str, Any] = {"average": AVERAGE}
    about: dict[str, Any] = {}
    for file in reversed(chain(path)):
        own = read_file(file)
        # All is inherited but the title: two tables with the same title would be mixed up.
        about |= {"title": place} | _about(file, own.pop("bench", None))
        for name in ("base", "method"):
            own.pop(name, None)
        settings |= typed(read(RunConfig), own, str(file), "adagc train --help")
    _check_variables(path, settings)
    default = (settings.pop("seed"),) if "seed" in settings else Scenario.seeds
    about["seeds"] = _seeds(path, about.get("seeds", default))
    return Scenario(name=place, settings=settings, methods=method_options(path), **about)


def _about(path: Path, block: Any) -> dict[str, Any]:
    """The checked settings of the block `bench:`."""
    if not isinstance(block or {}, dict):
        raise UsageError(f"{path}: bench must hold settings of its own, such as title and seeds")
    return typed(_ABOUT, block or {}, f"{path}: bench", "adagc bench --help")


def _seeds(path: Path, seeds: Any) -> tuple[int, ...]:
    """Check that seeds are different whole numbers."""
    if not isinstance(seeds, list | tuple) or not seeds or not all(type(n) is int for n in seeds):
        raise UsageError(f"{path}: seeds must be a list of whole numbers, such as [0, 1, 2]")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"{path}: seeds contains a number twice: give each seed once")
    return tuple(seeds)


def _check_variables(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise UsageError if a setting contains an environment variable that is not set."""
    unset = [
        f"{name} ({'the data' if key == 'root' else f'the file of {key}'})"
        for key, value in settings.items()
        if isinstance(value, str)
        for name in re.findall(r"\$\{(\w+)\}", value)
    ]
    if unset:
        raise UsageError(
            f"{path} uses environment variables that are not set: {', '.join(unset)}; set them:"
            f" {unset[0].partition(' ')[0]}=PATH adagc ..."
        )

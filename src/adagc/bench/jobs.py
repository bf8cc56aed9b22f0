"""A job is one run of a benchmark, and its folder's name says which: nothing is ever mixed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.bench.scenarios import Scenario
from adagc.errors import AdagcError
from adagc.methods import find, outline
from adagc.options import read, typed
from adagc.training.config import RunConfig
from adagc.training.contents import contents
from adagc.training.runs import FREE, Run

if TYPE_CHECKING:
    from adagc.methods import Method

Status = Literal["finished", "started", "failed", "missing"]
DONE = "bench.json"  # written when everything else is there


@dataclass(frozen=True)
class Job:
    """One method with one seed in one scenario; plain values, so that it can travel."""

    scenario: str
    label: str  # the row of the table it belongs to: the method's title, or the name of a variant
    method: str  # title
    options: Mapping[str, Any]
    settings: Mapping[str, Any]  # of RunConfig, the seed included
    folder: str

    @property
    def seed(self) -> int:
        """Of weights, order and augmentation."""
        return int(self.settings["seed"])

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.scenario} · {self.label} · seed {self.seed}"

    @property
    def failure(self) -> Path:
        """Where it is written why the last attempt failed."""
        return Path(f"{self.folder}.failed.json")

    @property
    def lock(self) -> Path:
        """Held by the process that works on it."""
        return Path(f"{self.folder}.lock")

    @property
    def run(self) -> Run:
        """Its folder."""
        return Run(Path(self.folder))

    @property
    def status(self) -> Status:
        """What its folder says."""
        run = self.run
        if run.path(DONE).exists():
            return "finished"
        if self.failure.exists():
            return "failed"
        return "started" if run.path("config.yaml").exists() else "missing"

    @property
    def epochs_done(self) -> int:
        """Finished epochs, those of an unfinished run included."""
        try:
            return len(self.run.history)
        except AdagcError:
            return 0  # damaged, as whoever continues the run will say

    def config(self) -> RunConfig:
        """The settings, checked."""
        return RunConfig(**self.settings)

    def build(self) -> Method:
        """The method, fresh."""
        return find(self.method)(**self.options)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def make_job(
    scenario: Scenario,
    title: str,
    seed: int,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> Job:
    """The job of a method in a scenario, with the scenario's options for it or with others.

    The folder's name carries a digest of everything that shapes the run: a changed setting, option
    or file (labels, embeddings, weights) is another folder. Where the data lies and what computes
    it do not count.
    """
    method = outline(title)
    told = scenario.told(method.title) if options is None else options
    known = read(method)
    defaults = {name: option.default for name, option in known.items()}
    full = typed(known, {**defaults, **told}, method.title, f"adagc methods {method.title}")
    settings = scenario.config(seed).to_dict()
    digest = _digest(method.title, full, settings)
    # Not of the label: two variants of a study that come to the same are one run.
    folder = out / scenario.name / slug(method.title) / f"seed{seed}-{digest}"
    return Job(scenario.name, label or method.title, method.title, full, settings, str(folder))


def plan(
    scenario: Scenario, methods: Iterable[str], out: Path, seeds: Iterable[int] | None = None
) -> list[Job]:
    """All methods with all seeds, one seed after the other: a first table is there early."""
    titles = dict.fromkeys(methods)
    chosen = dict.fromkeys(scenario.seeds if seeds is None else seeds)
    return [make_job(scenario, title, seed, out) for seed in chosen for title in titles]


def slug(title: str) -> str:
    """A folder name for a title.

    >>> slug("BoostLU + LL-Ct"), slug("GT w/ BCE"), slug("T + S'")
    ('boostlu-ll-ct', 'gt-w-bce', 't-s-raw')
    """
    return re.sub(r"[^a-z0-9.]+", "-", title.lower().replace("'", "-raw"))


def _digest(title: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    counted = {key: value for key, value in settings.items() if key not in FREE}
    counted |= contents(settings)
    text = json.dumps([title, options, counted], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]

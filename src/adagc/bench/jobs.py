"""A job is one run of a benchmark: a method with its options, settings and a seed.

The name of its folder contains a digest of all of them, so that runs are never mixed up.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.bench.scenarios import Scenario
from adagc.errors import AdagcError
from adagc.methods import find, outline
from adagc.methods.told import Knowledge, Source, TunedOn, knowledge, source_of, told_by
from adagc.options import read, typed
from adagc.training.config import RunConfig
from adagc.training.contents import contents
from adagc.training.prior_files import read_priors
from adagc.training.runs import FREE, Run

if TYPE_CHECKING:
    from adagc.methods import Method

Status = Literal["finished", "started", "failed", "missing"]
# Settings that came later: runs that do not use them are those from before.
_LATER = frozenset({"selection", "cloudy", "resample"})
DONE = "bench.json"  # this file is written last: a run that has it is finished


@dataclass(frozen=True)
class Job:
    """One method with one seed in one scenario; plain values that can be sent to a process."""

    scenario: str
    label: str  # the row of the table it belongs to: the method's title, or the name of a variant
    method: str  # title of the method
    options: Mapping[str, Any]
    settings: Mapping[str, Any]  # arguments of RunConfig, the seed included
    folder: str
    told: Sequence[str] = ()  # options through which it is told how frequent labels are
    # What it knows of label frequencies; empty in records of older versions, in which methods that
    # need them were given true ones and all others none.
    knows: Knowledge | Literal[""] = ""

    @property
    def seed(self) -> int:
        """The seed of the run: initial weights, order of the images, augmentation."""
        return int(self.settings["seed"])

    @property
    def name(self) -> str:
        """Scenario, row and seed, for messages."""
        return f"{self.scenario} · {self.label} · seed {self.seed}"

    @property
    def failure(self) -> Path:
        """File that says why the last attempt failed."""
        return Path(f"{self.folder}.failed.json")

    @property
    def lock(self) -> Path:
        """Lock file, held by the process that works on this job."""
        return Path(f"{self.folder}.lock")

    @property
    def run(self) -> Run:
        """The run in its folder, which need not exist yet."""
        return Run(Path(self.folder))

    @property
    def status(self) -> Status:
        """How far the run is, judged by the files in and beside its folder."""
        run = self.run
        if run.path(DONE).exists():
            return "finished"
        if self.failure.exists():
            return "failed"
        return "started" if run.path("config.yaml").exists() else "missing"

    @property
    def epochs_done(self) -> int:
        """Number of epochs in the run's history, whether or not the run is finished."""
        try:
            return len(self.run.history)
        except AdagcError:
            return 0  # damaged; an error will say so when the run is continued

    @property
    def informed(self) -> Knowledge:
        """What it knows of how frequent labels are."""
        if self.told:
            return "told"
        return self.knows or ("told" if "priors" in outline(self.method).needs else "none")

    @property
    def pilots(self) -> Path:
        """Folder of estimated class frequencies, which all runs of the scenario share."""
        folder = Path(self.folder)
        place = next((above for above in folder.parents if above.name == self.scenario), None)
        return (place or folder.parent) / "pilots"

    def config(self) -> RunConfig:
        """The settings as a RunConfig, which checks them."""
        return RunConfig(**self.settings)

    def build(self) -> Method:
        """A new instance of the method with its options."""
        return find(self.method)(**self.options)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for `json.dumps`; `Job(**values)` reads them back."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def make_job(
    scenario: Scenario,
    title: str,
    seed: int,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    label: str | None = None,
    tuned_on: TunedOn | None = None,
) -> Job:
    """The job of a method in a scenario.

    The name of the folder contains a digest of everything that can change the result: with another
    setting, option or content of a file (labels, embeddings, weights) the folder is another one.
    The location of the data and the device are not part of the digest.

    Args:
        scenario: Data, labels, network and epochs.
        title: Title of the method.
        seed: Seed of the run.
        out: Folder that holds the runs of all scenarios.
        options: Options of the method; those of the scenario if None.
        label: Row of the table that the run belongs to; the title if None.
        tuned_on: Labels by which these options were chosen; as the scenario says if None.
    """
    method = outline(title)
    given = scenario.told(method.title) if options is None else options
    known = read(method)
    defaults = {name: option.default for name, option in known.items()}
    full = typed(known, {**defaults, **given}, method.title, f"adagc methods {method.title}")
    settings = scenario.config(seed).to_dict()
    digest = _digest(method.title, full, settings)
    # The label is not part of the name: two variants with the same options are one run.
    folder = out / scenario.name / slug(method.title) / f"seed{seed}-{digest}"
    told = told_by(method, full, tuned_on or scenario.tuned_on(method.title))
    if settings["selection"] is not None and method.selective:
        told = (*told, "selection")  # measured by clean labels of some images
    source = _source(method, full, settings["priors"])
    knows = knowledge(bool(told), source)
    return Job(
        scenario.name,
        label or method.title,
        method.title,
        full,
        settings,
        str(folder),
        told,
        knows,
    )


def _source(method: type[Method], options: Mapping[str, Any], priors: str) -> Source | None:
    """Where a run has label frequencies from; those in a file may have been estimated."""
    found = source_of(method, options, priors)
    return read_priors(Path(priors)).source if found == "file" else found


def plan(
    scenario: Scenario, methods: Iterable[str], out: Path, seeds: Iterable[int] | None = None
) -> list[Job]:
    """The jobs of all methods with all seeds.

    All methods with the first seed come first, so that a first table can be made early.
    """
    titles = dict.fromkeys(methods)
    chosen = dict.fromkeys(scenario.seeds if seeds is None else seeds)
    return [make_job(scenario, title, seed, out) for seed in chosen for title in titles]


def slug(title: str) -> str:
    """A title as a folder name: small letters, digits, dots and hyphens.

    >>> slug("BoostLU + LL-Ct"), slug("GT w/ BCE"), slug("T + S'")
    ('boostlu-ll-ct', 'gt-w-bce', 't-s-raw')
    """
    return re.sub(r"[^a-z0-9.]+", "-", title.lower().replace("'", "-raw"))


def _digest(title: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits that differ if anything differs that can change the result."""
    counted = {
        key: value
        for key, value in settings.items()
        if key not in FREE and not (key in _LATER and not value)
    }
    counted |= contents(settings)
    text = json.dumps([title, options, counted], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]

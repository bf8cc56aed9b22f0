"""What a run folder tells, as far as the run has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adagc.errors import AdagcError
from adagc.methods.base import Method
from adagc.models import ModelSpec, read_description
from adagc.options import read
from adagc.training.records import (
    EpochRecord,
    LabelSummary,
    NamedRole,
    RunSettings,
    TestRecord,
)
from adagc.training.runs import Run
from adagc.types import NetworkRole, Scores, Story, Verdict, in_order, with_role

# What decides which images are tested; paths count by their last part, as data may be moved.
_TEST = ("data", "root", "split", "split_seed", "scenes", "truth")
# Differences between two runs that need no mention beside a comparison.
_SILENT = frozenset({"cache", "accelerator", "oracle", "precision", "absent", *_TEST})


@dataclass(frozen=True)
class Record:
    """Everything in a run folder that the page shows; what is not there yet is None or empty."""

    run: Run
    settings: RunSettings
    history: tuple[EpochRecord, ...]
    labels: LabelSummary | None
    scores: TestRecord | None
    environment: Mapping[str, Any]
    spec: ModelSpec | None  # of a finished run

    @classmethod
    def of(cls, run: Run) -> Record:
        """Read what is there."""
        run = Run.open(run.folder)
        known = run.exists("environment.json")
        return cls(
            run=run,
            settings=run.settings,
            history=tuple(run.history),
            labels=run.labels,
            scores=run.scores,
            environment=run.read_json("environment.json") if known else {},
            spec=read_description(run.folder).spec if run.finished else None,
        )

    @property
    def method(self) -> str:
        """Its title, as tables print it."""
        return self.settings.method

    @property
    def options(self) -> Mapping[str, Any]:
        """All hyper-parameters of the method."""
        return self.settings.options

    @property
    def telling_options(self) -> Mapping[str, Any]:
        """Those worth naming: what one tunes, and what is not as usual."""
        found = _method_class(self.method)
        if found is None:
            return self.options
        known = read(found)
        return {
            name: value
            for name, value in self.options.items()
            if name in found.grid or name not in known or value != known[name].default
        }

    @property
    def clean(self) -> bool:
        """Whether training saw all true labels: a bound for the others, not a rival."""
        found = _method_class(self.method)
        return self.settings["scheme"] == "clean" or (found is not None and "truth" in found.needs)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of all tables of the run."""
        source = self.labels or self.scores
        return () if source is None else source.classes

    @property
    def epochs(self) -> int:
        """How many were asked for."""
        return int(self.settings["epochs"] or len(self.history))

    @property
    def seconds(self) -> float:
        """Time spent on training and validation."""
        return sum(line.seconds for line in self.history)

    @cached_property
    def roles(self) -> dict[str, NamedRole]:
        """Of every network that the history or the test knows, the deployed one first."""
        found = {name: one for line in self.history for name, one in line.roles.items()}
        for name, one in {} if self.scores is None else self.scores.networks.items():
            found.setdefault(name, NamedRole(one.role, one.title))
        return {name: found[name] for name in in_order(found)}

    @property
    def final(self) -> Scores | None:
        """Test scores of the deployed network after the last epoch; None without a test."""
        return None if self.scores is None else self.scores.final

    @cached_property
    def story(self) -> Story:
        """What the method's last status means."""
        found = _method_class(self.method)
        if found is None or not self.history:
            return Story()
        back = any(line.verdict is Verdict.RESTORE for line in self.history)
        return found.story(self.history[-1].status, went_back=back)

    @cached_property
    def twin(self) -> tuple[str, str] | None:
        """An average that is another network under a second name, and that network.

        They are the same where a method keeps an average of its own with equal momentum.
        """
        own, other = (
            with_role(self.roles, role) for role in (NetworkRole.AVERAGE, NetworkRole.TEACHER)
        )
        noisy = [line.noisy for line in self.history]
        if own is None or other is None or not noisy:
            return None
        same = all(other in line and line[other] == line.get(own) for line in noisy)
        return (own, other) if same else None

    @property
    def networks(self) -> list[str]:
        """Names of the networks worth showing, the deployed one first."""
        return [name for name in self.roles if self.twin is None or name != self.twin[0]]

    def shown(self, network: str) -> str:
        """How to call a network of this run."""
        return self.roles[network].title

    def same_test(self, other: Record) -> bool:
        """Whether both were tested on the same images and classes."""
        mine, theirs = self.scores, other.scores
        if mine is None or theirs is None:
            return False
        return (mine.images, mine.classes, mine.thresholds) == (
            theirs.images,
            theirs.classes,
            theirs.thresholds,
        ) and all(_bare(self.settings[key]) == _bare(other.settings[key]) for key in _TEST)

    def differences(self, other: Record) -> list[str]:
        """Settings of `other` that are not those of this run, for a fair comparison."""
        keys = [
            k for k in {**self.settings.settings, **other.settings.settings} if k not in _SILENT
        ]
        found = [
            f"{key} {other.settings[key]} (here {self.settings[key]})"
            for key in keys
            if _bare(self.settings[key]) != _bare(other.settings[key])
        ]
        hashes = [None if one.labels is None else one.labels.hash for one in (self, other)]
        if hashes[0] != hashes[1] and not found:
            found.append("other observed labels")
        return found


def _method_class(title: str) -> type[Method] | None:
    from adagc.methods import find

    try:
        return find(title)
    except AdagcError:  # made elsewhere, or by a version that knew more
        return None


def _bare(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value

"""Read from a run folder what the report shows, whether or not the run is finished."""

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
from adagc.training.frequencies import Frequencies, frequencies
from adagc.training.records import (
    EpochRecord,
    LabelSummary,
    NamedRole,
    RunSettings,
    TestRecord,
)
from adagc.training.runs import Run
from adagc.training.views import View
from adagc.types import NetworkRole, Scores, Story, Verdict, in_order, with_role

# Settings that decide which images are tested; of paths only the last part is compared, because
# data may be moved.
_TEST = (
    *("data", "root", "split", "split_seed", "scenes", "truth", "maps", "split_by_place"),
    "cloudy",
)
# Settings whose differences between two runs are not mentioned.
_SILENT = frozenset({"cache", "accelerator", "oracle", "precision", "absent", *_TEST})


@dataclass(frozen=True)
class Record:
    """Everything in a run folder that the page shows; what does not exist yet is None or empty."""

    run: Run
    settings: RunSettings
    history: tuple[EpochRecord, ...]
    labels: LabelSummary | None
    scores: TestRecord | None
    environment: Mapping[str, Any]
    spec: ModelSpec | None  # None until the run is finished
    thresholds: tuple[float, ...] = ()  # per class, as the deployed network or the user has them

    @classmethod
    def of(cls, run: Run, thresholds: str | None = None) -> Record:
        """Read the files of a run.

        Args:
            run: The run.
            thresholds: Thresholds that a user asks for; see `adagc.limits`.
        """
        run = Run.open(run.folder)
        limits: tuple[float, ...] = ()
        if run.finished:
            from adagc.training.scoring import chosen_limits, rescored

            limits = chosen_limits(run, thresholds).values
        has_environment = run.exists("environment.json")
        return cls(
            run=run,
            settings=run.settings,
            history=tuple(run.history),
            labels=run.labels,
            scores=run.scores if thresholds is None else rescored(run, thresholds),
            environment=run.read_json("environment.json") if has_environment else {},
            spec=read_description(run.folder).spec if run.finished else None,
            thresholds=limits,
        )

    @property
    def method(self) -> str:
        """The title of the method, as tables print it."""
        return self.settings.method

    @property
    def options(self) -> Mapping[str, Any]:
        """All options of the method."""
        return self.settings.options

    @property
    def telling_options(self) -> Mapping[str, Any]:
        """The options worth naming: those that one tunes, and those not at their default."""
        method = _method_class(self.method)
        if method is None:
            return self.options
        known = read(method)
        return {
            name: value
            for name, value in self.options.items()
            if name in method.grid or name not in known or value != known[name].default
        }

    @property
    def clean(self) -> bool:
        """Whether training used all true labels, so that its score is an upper bound for others."""
        method = _method_class(self.method)
        needs_truth = method is not None and "truth" in method.needs
        return self.settings["scheme"] == "clean" or needs_truth

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of all arrays of the run."""
        source = self.labels or self.scores
        return () if source is None else source.classes

    @property
    def epochs(self) -> int:
        """Number of epochs that the run was asked to train."""
        return int(self.settings["epochs"] or len(self.history))

    @property
    def seconds(self) -> float:
        """Time in seconds spent on training and validation."""
        return sum(line.seconds for line in self.history)

    @cached_property
    def roles(self) -> dict[str, NamedRole]:
        """Role and title of every network in the history or the test, the deployed one first."""
        roles = {name: one for line in self.history for name, one in line.roles.items()}
        for name, one in {} if self.scores is None else self.scores.networks.items():
            roles.setdefault(name, NamedRole(one.role, one.title))
        return {name: roles[name] for name in in_order(roles)}

    @property
    def final(self) -> Scores | None:
        """Test scores of the deployed network after the last epoch; None without a test."""
        return None if self.scores is None else self.scores.final

    def score(self, view: View) -> float | None:
        """Test mAP in per cent in this view; None without a test or without such a network."""
        scores = None if self.scores is None else view.scores(self.scores.networks)
        return None if scores is None else 100 * scores.mean_average_precision

    @cached_property
    def story(self) -> Story:
        """What happened during training, as the method explains its last status."""
        method = _method_class(self.method)
        if method is None or not self.history:
            return Story()
        back = any(line.verdict is Verdict.RESTORE for line in self.history)
        return method.story(self.history[-1].status, went_back=back)

    @cached_property
    def frequencies(self) -> Frequencies | None:
        """How frequent classes probably are; None where that is known, or nothing tells."""
        if self.clean or not self.run.finished:
            return None
        try:
            return frequencies(self.run)
        except AdagcError:  # an older version trained it, or it has no validation images
            return None

    @cached_property
    def twin(self) -> tuple[str, str] | None:
        """The name of the averaged network and of another network that is equal to it, if one is.

        They are equal if a method keeps an average of its own with the same momentum.
        """
        average, other = (
            with_role(self.roles, role) for role in (NetworkRole.AVERAGE, NetworkRole.TEACHER)
        )
        noisy = [line.noisy for line in self.history]
        if average is None or other is None or not noisy:
            return None
        same = all(other in line and line[other] == line.get(average) for line in noisy)
        return (average, other) if same else None

    @property
    def networks(self) -> list[str]:
        """Names of the networks to show, the deployed one first; of two equal ones only one."""
        return [name for name in self.roles if self.twin is None or name != self.twin[0]]

    def shown(self, network: str) -> str:
        """The title of a network, under which the page shows it."""
        return self.roles[network].title

    def same_test(self, other: Record) -> bool:
        """Whether both were tested on the same images and classes with comparable thresholds.

        Thresholds that every run learns for itself are part of what is compared; those that
        somebody has set must be equal.
        """
        one, two = self.scores, other.scores
        if one is None or two is None:
            return False
        learnt = self._learns_thresholds or other._learns_thresholds
        return (
            (one.images, one.classes) == (two.images, two.classes)
            and (learnt or one.thresholds == two.thresholds)
            and all(_bare(self.settings[key]) == _bare(other.settings[key]) for key in _TEST)
        )

    @property
    def _learns_thresholds(self) -> bool:
        tested = () if self.scores is None else self.scores.networks.values()
        return any(at.thresholds is not None for one in tested for at in one.epochs.values())

    def differences(self, other: Record) -> list[str]:
        """The settings in which `other` differs from this run, in words."""
        keys = [
            k for k in {**self.settings.settings, **other.settings.settings} if k not in _SILENT
        ]
        differences = [
            f"{key} {other.settings[key]} (here {self.settings[key]})"
            for key in keys
            if _bare(self.settings[key]) != _bare(other.settings[key])
        ]
        hashes = [None if one.labels is None else one.labels.hash for one in (self, other)]
        if hashes[0] != hashes[1] and not differences:
            differences.append("its observed labels")
        return differences


def _method_class(title: str) -> type[Method] | None:
    """The class of a method; None if it is not known here."""
    from adagc.methods import find

    try:
        return find(title)
    except AdagcError:  # from a plug-in that is not loaded here, or another version
        return None


def _bare(value: Any) -> Any:
    """The last part of a path; other values as they are."""
    return Path(value).name if isinstance(value, str) else value

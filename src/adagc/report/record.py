"""What a run folder tells, as far as the run has come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adagc.errors import AdagcError
from adagc.options import read
from adagc.training.runs import Run
from adagc.types import in_order

# What decides which images are tested; paths count by their last part, as data may be moved.
_TEST = ("data", "root", "split", "split_seed", "scenes", "truth")
# Differences between two runs that need no mention beside a comparison.
_SILENT = frozenset({"method", "cache", "accelerator", "oracle", "precision", "absent", *_TEST})


@dataclass(frozen=True)
class Record:
    """Everything in a run folder that the page shows; absent files are empty here."""

    run: Run
    config: Mapping[str, Any]
    history: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, Any]
    scores: Mapping[str, Any]
    environment: Mapping[str, Any]
    model: Mapping[str, Any]  # model.json

    @classmethod
    def of(cls, run: Run) -> Record:
        """Read what is there."""
        if not run.path("config.yaml").exists():
            raise AdagcError(f"{run.folder} is not a run folder: it has no config.yaml")
        return cls(
            run=run,
            config=run.config,
            history=_history(run),
            labels=_json(run, "labels.json"),
            scores=_json(run, "scores.json"),
            environment=_json(run, "environment.json"),
            model=_json(run, "model.json"),
        )

    @property
    def method(self) -> str:
        """Its title, as tables print it."""
        return str(self.config.get("method", {}).get("title", "unknown method"))

    @property
    def options(self) -> dict[str, Any]:
        """All hyper-parameters of the method."""
        given = self.config.get("method", {})
        return {name: value for name, value in given.items() if name != "title"}

    @property
    def telling_options(self) -> dict[str, Any]:
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
        return self.config.get("scheme") == "clean" or (
            found is not None and "truth" in found.needs
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of all tables of the run."""
        return tuple(self.labels.get("classes") or self.scores.get("classes") or ())

    @property
    def epochs(self) -> int:
        """How many were asked for."""
        return int(self.config.get("epochs", len(self.history)))

    @property
    def seconds(self) -> float:
        """Time spent on training and validation."""
        return sum(float(line.get("seconds", 0.0)) for line in self.history)

    @property
    def networks(self) -> dict[str, Mapping[str, Any]]:
        """Test scores: network to {"last": ..., "best": ...}."""
        found = self.scores.get("networks", {})
        return {name: found[name] for name in in_order(found)}

    @property
    def final(self) -> Mapping[str, Any]:
        """Test scores of the deployed network after the last epoch; empty without a test."""
        chosen: Mapping[str, Any] = self.networks.get("network", {}).get("last", {})
        return chosen

    @property
    def status(self) -> Mapping[str, Any]:
        """What the method said of itself last."""
        return self.history[-1].get("status", {}) if self.history else {}

    @cached_property
    def went_back(self) -> bool:
        """Whether training returned to an earlier epoch."""
        return any(line.get("verdict") == "restore" for line in self.history)

    @property
    def twins(self) -> frozenset[str]:
        """Networks that are another one under a second name (an average with equal momentum)."""
        noisy = [line["noisy"] for line in self.history]
        same = noisy and all(
            "teacher" in line and line["teacher"] == line.get("averaged") for line in noisy
        )
        return frozenset({"averaged"}) if same else frozenset()

    def shown(self, network: str) -> str:
        """How to call a network of this run."""
        both = any("teacher" in line.get("noisy", {}) for line in self.history)
        return "student" if both and network == "network" else network

    def same_test(self, other: Record) -> bool:
        """Whether both were tested on the same images and classes."""
        mine, theirs = self.scores, other.scores
        return all(
            mine.get(key) == theirs.get(key)
            for key in ("images", "classes", "threshold", "thresholds")
        ) and all(_bare(self.config.get(key)) == _bare(other.config.get(key)) for key in _TEST)

    def differences(self, other: Record) -> list[str]:
        """Settings of `other` that are not those of this run, for a fair comparison."""
        keys = [key for key in {**self.config, **other.config} if key not in _SILENT]
        found = [
            f"{key} {other.config.get(key)} (here {self.config.get(key)})"
            for key in keys
            if _bare(self.config.get(key)) != _bare(other.config.get(key))
        ]
        if self.labels.get("hash") != other.labels.get("hash") and not found:
            found.append("other observed labels")
        return found


def _method_class(title: str) -> Any:
    from adagc.methods import outline

    try:
        return outline(title)
    except AdagcError:  # made elsewhere, or by a version that knew more
        return None


def _bare(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value


def _json(run: Run, name: str) -> Mapping[str, Any]:
    if not run.path(name).exists():
        return {}
    loaded = run.read_json(name)
    return loaded if isinstance(loaded, dict) else {}


def _history(run: Run) -> tuple[Mapping[str, Any], ...]:
    """Finished epochs; a line that is being written at this moment is passed over."""
    path = run.path("history.jsonl")
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return tuple(lines)

"""A run: starting it, and reading its files, which are on disk or in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adagc.errors import AdagcError, UsageError
from adagc.training.environment import environment
from adagc.training.folders import DiskFolder, Folder, MemoryFolder
from adagc.training.lock import HOLDER, LOCK
from adagc.training.records import (
    FORMER,
    EpochRecord,
    LabelSummary,
    ModelRecord,
    PriorsRecord,
    RunSettings,
    ShortlistRecord,
    TestRecord,
    parse,
    parse_history,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adagc.models import Classifier

# Settings that may change when a run is resumed. Labels and splits are compared by content instead,
# and so are the files whose digests are in inputs.json.
FREE = frozenset({"cache", "accelerator", "absent", "oracle", "root", "labels", "split"})
# What a process that starts a run writes first; a run killed then can be started again.
_FIRST = frozenset({"environment.json", "inputs.json", LOCK, HOLDER})
_TRAIN_AGAIN = "run adagc train again with another --out"
_COPY_AGAIN = "copy it again, or delete it: only checks need it"
_MAKE_AGAIN = "copy it again, or delete it to have it made again when the run is resumed"
_REMEDIES = {
    "environment.json": _COPY_AGAIN,
    "inputs.json": _COPY_AGAIN,
    "priors.json": _MAKE_AGAIN,
    "shortlist.json": _MAKE_AGAIN,
}


@dataclass(frozen=True, init=False, repr=False)
class Run:
    """A run and its files: config, environment, labels, history, weights, scores, report.

    `adagc.train` returns one, and `Run.open` reads one from its folder.

    Example:
        >>> from adagc import Run, RunConfig, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=2,
        ...                    backbone="test_resnet", weights="none")
        >>> run = train(config, "AN", "runs/first")
        >>> Run.open("runs/first")
        Run('runs/first': AN, 2 epochs, test mAP ...)
        >>> run.finished, len(run.history), sorted(run.predictions)
        (True, 2, ['network-best', 'network-last'])
        >>> run.settings["learning_rate"], run.model().spec.shape
        (0.0005, (14, 16, 16))
        >>> len(run.scores.table())  # a network, after its last and after its best epoch
        2

    Args:
        files: A folder on disk, or the files of a run in memory.
    """

    files: Folder

    def __init__(self, files: Folder | Path | str) -> None:
        given = DiskFolder(Path(files)) if isinstance(files, Path | str) else files
        object.__setattr__(self, "files", given)

    def __str__(self) -> str:
        return str(self.files)

    def __repr__(self) -> str:
        """Where it is, what was trained, how far it is and its main score: Run('runs/first': ...).

        A damaged run has a short one, as showing an object must not fail.
        """
        place = "in memory" if self.files.place is None else repr(str(self))
        with suppress(AdagcError, OSError, KeyError, ValueError):
            return f"Run({place}: {', '.join(self._facts())})"
        return f"Run({place})"

    def _facts(self) -> Iterator[str]:
        yield f"{self.settings.method}"
        done = max((record.epoch for record in self.history), default=0)
        whole = done == self.settings.epochs
        yield f"{done} epochs" if whole else f"{done} of {self.settings.epochs} epochs"
        if not self.finished:
            yield "not finished"
        tested = self.scores
        if tested is not None and tested.final is not None:
            yield f"test mAP {100 * tested.final.mean_average_precision:.1f}"

    @classmethod
    def of(cls, run: Run | Path | str) -> Run:
        """A run as it is, or the one in a folder."""
        return run if isinstance(run, Run) else cls.open(run)

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """The run in this folder; AdagcError if there is none."""
        run = cls(folder)
        if not run.folder.exists():
            raise UsageError(f"{folder} does not exist: give the folder of a run")
        if not run.exists("config.yaml"):
            if run.exists("model.onnx"):
                raise UsageError(
                    f"{folder} is an exported model, which adagc predict takes: give the folder of"
                    " the run that it was made from"
                )
            raise AdagcError(f"{folder} is not a run folder: it has no config.yaml")
        return run

    @classmethod
    def start(
        cls,
        folder: Path | str | None,
        config: dict[str, Any],
        *,
        resume: bool,
        contents: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start a new run, or open one that is to be resumed.

        Raises UsageError if the folder contains other files, or a run that may not be resumed
        because `resume` is False or its settings differ.

        Args:
            folder: The folder of the run; without one the run is kept in memory.
            config: All settings.
            resume: Whether a run in this folder is to be continued.
            contents: Digest of every file that the settings name, by the name of the setting.
            defaults: Defaults of settings and options, in the form of `config`, for those that
                the version did not know which started the run.
        """
        if folder is None:
            run = cls(MemoryFolder())
        else:
            run = cls(folder)
            run.check_place(resume=resume)
            run.folder.mkdir(parents=True, exist_ok=True)
            if run.exists("config.yaml"):
                run._check_same(config, contents or {}, defaults or {})
                if not run.begun:
                    run.write_json("inputs.json", dict(contents or {}))
                return run
        run.write_json("environment.json", environment())
        run.write_json("inputs.json", dict(contents or {}))
        # Written last, because a folder with this file counts as a run.
        run.files.write("config.yaml", yaml.safe_dump(config, sort_keys=False))
        return run

    def check_place(self, *, resume: bool) -> None:
        """Raise UsageError if no run may be written here; `resume`: this one may be continued."""
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file: choose another --out")
        if self.exists("config.yaml"):
            if not resume:
                raise UsageError(
                    f"{folder} already holds a run: add --resume to continue it, or choose"
                    " another --out"
                )
            return
        present = [path.name for path in folder.iterdir()] if folder.exists() else []
        if any(name not in _FIRST and not name.endswith(".tmp") for name in present):
            raise UsageError(f"{folder} is not empty and not a run: choose another --out")

    @property
    def begun(self) -> bool:
        """Whether an epoch is finished; before that the run may still get other data."""
        # The first line of the history is written before the first checkpoint.
        return self.exists("last.ckpt") or self.finished or len(self.history) > 1

    def _check_same(
        self, config: dict[str, Any], contents: Mapping[str, str], defaults: Mapping[str, Any]
    ) -> None:
        """Raise UsageError if the run was started with other settings or other files."""
        # A setting that the version did not know which started the run had what is now its default.
        known = _flat(dict(defaults))
        old = {**known, **_flat(self.config)}
        compared = self.check_inputs(contents, places=config)
        new = {**known, **_flat(config)}
        changed = sorted(
            key
            for key in old.keys() | new.keys()
            if key not in FREE | compared and old.get(key) != new.get(key)
        )
        if changed:
            # Another method has other options, too, but it is enough to name the method.
            key = "method.title" if "method.title" in changed else changed[0]
            raise UsageError(
                f"{self.folder} was started with {key} = {old.get(key)!r}, now it is"
                f" {new.get(key)!r}: use the same settings, or choose another --out"
            )

    def check_inputs(
        self, contents: Mapping[str, str], *, places: Mapping[str, Any] | None = None
    ) -> frozenset[str]:
        """Raise UsageError if an epoch is finished and the run was started with other contents.

        Labels and splits are left out: `adagc.training.experiment` compares them image by image.

        Args:
            contents: Digests by name, as in inputs.json.
            places: Where these things are, for the message.

        Returns:
            The names of what is recorded in inputs.json and in `contents`.
        """
        recorded = self.inputs
        compared = frozenset(recorded.keys() & contents.keys() - {"labels", "split"})
        for key in sorted(compared) if self.begun else ():
            if recorded[key] != contents[key]:
                place = (places or {}).get(key)
                named = f"{key} ({place})" if place else key
                raise UsageError(
                    f"the content of {named} has changed since {self} was started, which can only"
                    " continue with the same: restore it, or train anew with another --out"
                )
        return compared

    @property
    def folder(self) -> Path:
        """The folder on disk; AdagcError if the run is in memory."""
        return self.files.path("")

    def path(self, name: str) -> Path:
        """The path of a file on disk; AdagcError if the run is in memory."""
        return self.files.path(name)

    def exists(self, name: str) -> bool:
        """Whether the run has a file of this name yet."""
        return self.files.exists(name)

    def write_json(self, name: str, value: Any) -> None:
        """Write a value as JSON, replacing the file atomically."""
        self.files.write_json(name, value)

    def read_json(self, name: str) -> Any:
        """The content of a JSON file; AdagcError if it is missing or damaged."""
        try:
            return json.loads(self.files.read(name))
        except FileNotFoundError:
            raise AdagcError(
                f"{self} has no {name}: finish the run first (adagc train --resume)"
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            tested = name.startswith("scores")
            remedy = self._test_again if tested else _REMEDIES.get(name, _TRAIN_AGAIN)
            raise AdagcError(f"{self._named(name)} is damaged ({error}): {remedy}") from None

    @property
    def _test_again(self) -> str:
        """The remedy for damaged results of the test."""
        return f"run  adagc evaluate {self}"

    def _named(self, name: str) -> str:
        """The file as error messages name it."""
        place = self.files.place
        return name if place is None else str(place / name)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.yaml: all settings, as decided when the run started."""
        try:
            loaded = yaml.safe_load(self.files.read("config.yaml"))
        except (yaml.YAMLError, UnicodeDecodeError):
            loaded = None
        if not isinstance(loaded, dict):
            raise AdagcError(
                f"{self._named('config.yaml')} is damaged: copy the run folder again, or choose"
                " another --out"
            )
        return loaded

    @property
    def former(self) -> dict[str, Any]:
        """What settings were that did not exist yet when the run was started, by name."""
        return {name: value for name, value in FORMER.items() if name not in self.config}

    @property
    def inputs(self) -> Mapping[str, str]:
        """The content of inputs.json: digests of what the run is made from; empty without it."""
        if not self.exists("inputs.json"):
            return {}
        values = self.read_json("inputs.json")
        if not isinstance(values, dict):
            raise AdagcError(f"{self._named('inputs.json')} is damaged: {_COPY_AGAIN}")
        return values

    @property
    def settings(self) -> RunSettings:
        """The settings of the run, separated into method, its options, and all others."""
        remedy = "copy the run folder again"
        return parse(RunSettings, self.config, self._named("config.yaml"), remedy)

    @property
    def history(self) -> list[EpochRecord]:
        """The records of all finished epochs; empty before the first."""
        if not self.exists("history.jsonl"):
            return []
        content = self.files.read("history.jsonl")
        return [record for _, record in parse_history(content, self._named("history.jsonl"))]

    @property
    def labels(self) -> LabelSummary | None:
        """A summary of the observed labels; None if it is not written yet."""
        if not self.exists("labels.json"):
            return None
        values = self.read_json("labels.json")
        return parse(LabelSummary, values, self._named("labels.json"), _TRAIN_AGAIN)

    @property
    def priors(self) -> PriorsRecord | None:
        """How frequent classes are, as the run was told or has estimated it; None if it was not."""
        if not self.exists("priors.json"):
            return None
        values = self.read_json("priors.json")
        remedy = _REMEDIES["priors.json"]
        return parse(PriorsRecord, values, self._named("priors.json"), remedy)

    @property
    def shortlist(self) -> ShortlistRecord | None:
        """What explained held-out labels best before the run; None if nothing was compared."""
        if not self.exists("shortlist.json"):
            return None
        values = self.read_json("shortlist.json")
        remedy = _REMEDIES["shortlist.json"]
        return parse(ShortlistRecord, values, self._named("shortlist.json"), remedy)

    @property
    def scores(self) -> TestRecord | None:
        """Scores on the test images; None if they have no clean labels or are not tested yet."""
        if not self.exists("scores.json"):
            return None
        values = self.read_json("scores.json")
        return parse(TestRecord, values, self._named("scores.json"), self._test_again)

    @property
    def made(self) -> ModelRecord:
        """How the model of a finished run was trained; AdagcError before it is finished."""
        values = self.read_json("model.json")
        extra = values.get("extra") if isinstance(values, dict) else None
        return parse(ModelRecord, extra, self._named("model.json"), _TRAIN_AGAIN)

    @property
    def predictions(self) -> dict[str, NDArray[np.float32]]:
        """Predicted probabilities (N, C) of the test images, by "<network>-<last|best>"."""
        from adagc.training.scoring import predictions_of

        return predictions_of(self)

    def model(self) -> Classifier:
        """The deployed network, in evaluation mode."""
        from adagc.models import load_model

        return load_model(self.files.models)

    @property
    def finished(self) -> bool:
        """Whether training is complete and the model is saved."""
        return self.exists("model.json")


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The settings as one flat dictionary, with options of the method as "method.weight"."""
    method = config.get("method")
    options = method if isinstance(method, dict) else {}
    rest = {key: value for key, value in config.items() if key != "method"}
    return {**FORMER, **rest, **{f"method.{key}": value for key, value in options.items()}}

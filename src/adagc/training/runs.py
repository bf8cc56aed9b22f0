"""A run is its files, on disk or in memory; this says which there are and reads them back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adagc.errors import AdagcError, UsageError
from adagc.training.environment import environment
from adagc.training.folders import DiskFolder, Folder, MemoryFolder
from adagc.training.records import (
    EpochRecord,
    LabelSummary,
    ModelRecord,
    RunSettings,
    TestRecord,
    parse,
    parse_history,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adagc.models import Classifier

# What may differ between a run and its continuation. Labels and splits are compared by content,
# and so is what inputs.json notes.
FREE = frozenset({"cache", "accelerator", "oracle", "root", "labels", "split"})


@dataclass(frozen=True, init=False)
class Run:
    """The files of a run: config, environment, labels, history, weights, scores, report."""

    files: Folder

    def __init__(self, files: Folder | Path | str) -> None:
        given = DiskFolder(Path(files)) if isinstance(files, Path | str) else files
        object.__setattr__(self, "files", given)

    def __str__(self) -> str:
        return str(self.files)

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """A run that exists."""
        run = cls(folder)
        if not run.exists("config.yaml"):
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
    ) -> Run:
        """A new run, or one to continue; never a silent mix of two.

        Args:
            folder: Where; without one the run is kept in memory.
            config: All settings.
            resume: Whether there may be a run already.
            contents: Setting -> digest of the file it names.
        """
        if folder is None:
            run = cls(MemoryFolder())
        else:
            run = cls(folder)
            if run.folder.exists() and not run.folder.is_dir():
                raise UsageError(f"{folder} is a file: choose another --out")
            if run.exists("config.yaml"):
                if not resume:
                    raise UsageError(
                        f"{folder} already holds a run: add --resume to continue it, or choose"
                        " another --out"
                    )
                run._check_same(config, contents or {})
                return run
            # A run that was killed while starting leaves its environment or a temporary file.
            left = [path.name for path in run.folder.iterdir()] if run.folder.exists() else []
            begun = ("environment.json", "inputs.json")
            if any(name not in begun and not name.endswith(".tmp") for name in left):
                raise UsageError(f"{folder} is not empty and not a run: choose another --out")
            run.folder.mkdir(parents=True, exist_ok=True)
        run.write_json("environment.json", environment())
        run.write_json("inputs.json", dict(contents or {}))
        # Last, because its presence is what makes the folder a run.
        run.files.write("config.yaml", yaml.safe_dump(config, sort_keys=False))
        return run

    def _check_same(self, config: dict[str, Any], contents: Mapping[str, str]) -> None:
        before = self.config
        known = self.read_json("inputs.json") if self.exists("inputs.json") else {}
        noted = known.keys() & contents.keys() - {"labels", "split"}
        for key in sorted(noted):
            if known[key] != contents[key]:
                raise UsageError(
                    f"{self.folder} was started with another content of {key}"
                    f" ({config.get(key) or 'names.txt'}): bring it back, or choose another --out"
                )
        old, new = _flat(before), _flat(config)
        changed = sorted(
            key
            for key in old.keys() | new.keys()
            if key not in FREE | noted and old.get(key) != new.get(key)
        )
        if changed:
            # Another method has other options too; its name says it all.
            key = "method.title" if "method.title" in changed else changed[0]
            raise UsageError(
                f"{self.folder} was started with {key} = {old.get(key)!r}, now it is"
                f" {new.get(key)!r}: use the same settings, or choose another --out"
            )

    @property
    def folder(self) -> Path:
        """Where it lies on disk."""
        return self.files.path("")

    def path(self, name: str) -> Path:
        """A file of the run, on disk."""
        return self.files.path(name)

    def exists(self, name: str) -> bool:
        """Whether the run has this file by now."""
        return self.files.exists(name)

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file in one go."""
        self.files.write_json(name, value)

    def read_json(self, name: str) -> Any:
        """A JSON file of the run."""
        try:
            return json.loads(self.files.read(name))
        except FileNotFoundError:
            raise AdagcError(
                f"{self} has no {name}: finish the run first (adagc train --resume)"
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise AdagcError(f"{self._named(name)} is damaged ({error}): run again") from None

    def _named(self, name: str) -> str:
        place = self.files.place
        return name if place is None else str(place / name)

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings, as resolved when the run started."""
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
    def settings(self) -> RunSettings:
        """The same, with the method apart."""
        return parse(RunSettings, self.config, self._named("config.yaml"), "copy the run again")

    @property
    def history(self) -> list[EpochRecord]:
        """One entry per finished epoch."""
        if not self.exists("history.jsonl"):
            return []
        content = self.files.read("history.jsonl")
        return [record for _, record in parse_history(content, self._named("history.jsonl"))]

    @property
    def labels(self) -> LabelSummary | None:
        """What was observed; None before the run has noted it."""
        if not self.exists("labels.json"):
            return None
        values = self.read_json("labels.json")
        return parse(LabelSummary, values, self._named("labels.json"), "run again")

    @property
    def scores(self) -> TestRecord | None:
        """Scores on the test images; None without clean labels of them."""
        if not self.exists("scores.json"):
            return None
        remedy = f"run  adagc evaluate {self}"
        return parse(TestRecord, self.read_json("scores.json"), self._named("scores.json"), remedy)

    @property
    def made(self) -> ModelRecord:
        """How the model of a finished run came about."""
        values = self.read_json("model.json")
        own = values.get("extra") if isinstance(values, dict) else None
        return parse(ModelRecord, own, self._named("model.json"), "run again")

    @property
    def predictions(self) -> dict[str, NDArray[np.float32]]:
        """Probabilities for the test images, "<network>-<last|best>" to (N, C)."""
        from adagc.training.scoring import predictions_of

        return predictions_of(self)

    def model(self) -> Classifier:
        """The deployed network, in evaluation mode."""
        from adagc.models import load_model

        return load_model(self.files.models)

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return self.exists("model.json")


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with the method's own as "method.weight"."""
    own = config.get("method")
    options = own if isinstance(own, dict) else {}
    rest = {key: value for key, value in config.items() if key != "method"}
    return {**rest, **{f"method.{key}": value for key, value in options.items()}}

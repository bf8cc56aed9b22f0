"""A run is a folder; this says what lies where and reads it back."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from adagc._version import __version__
from adagc.atomic import write_json, write_text
from adagc.errors import AdagcError, UsageError

# What may differ between a run and its continuation. Labels and splits are compared by content,
# and so is what inputs.json notes.
FREE = frozenset({"cache", "accelerator", "oracle", "root", "labels", "split"})


@dataclass(frozen=True)
class Run:
    """A run folder: config, environment, labels, history, weights, scores, report."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """A run that exists."""
        run = cls(Path(folder))
        if not run.path("config.yaml").exists():
            raise AdagcError(f"{folder} is not a run folder: it has no config.yaml")
        return run

    @classmethod
    def start(
        cls,
        folder: Path | str,
        config: dict[str, Any],
        *,
        resume: bool,
        contents: Mapping[str, str] | None = None,
    ) -> Run:
        """A new run, or one to continue; never a silent mix of two.

        Args:
            folder: Where.
            config: All settings.
            resume: Whether there may be a run already.
            contents: Setting -> digest of the file it names.
        """
        run = cls(Path(folder))
        if run.folder.exists() and not run.folder.is_dir():
            raise UsageError(f"{folder} is a file: choose another --out")
        if run.path("config.yaml").exists():
            if not resume:
                raise UsageError(
                    f"{folder} already holds a run: add --resume to continue it, or choose another"
                    " --out"
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
        write_text(run.path("config.yaml"), yaml.safe_dump(config, sort_keys=False))
        return run

    def _check_same(self, config: dict[str, Any], contents: Mapping[str, str]) -> None:
        before = self.config
        known = self.read_json("inputs.json") if self.path("inputs.json").exists() else {}
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

    def path(self, name: str) -> Path:
        """A file of the run."""
        return self.folder / name

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file in one go."""
        write_json(self.path(name), value)

    def read_json(self, name: str) -> Any:
        """A JSON file of the run."""
        try:
            return json.loads(self.path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AdagcError(
                f"{self.folder} has no {name}: finish the run first (adagc train --resume)"
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise AdagcError(f"{self.path(name)} is damaged ({error}): run again") from None

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings, as resolved when the run started."""
        path = self.path("config.yaml")
        try:
            loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            loaded = None
        if not isinstance(loaded, dict):
            raise AdagcError(
                f"{path} is damaged: copy the run folder again, or choose another --out"
            )
        return loaded

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per finished epoch."""
        path = self.path("history.jsonl")
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()  # the line that was being written when the run was killed
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError as error:
            raise AdagcError(
                f"{path} is damaged ({error}): continue the run (adagc train --resume), which"
                " writes it anew"
            ) from None

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return self.path("model.json").exists()


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with the method's own as "method.weight"."""
    own = config.get("method")
    options = own if isinstance(own, dict) else {}
    rest = {key: value for key, value in config.items() if key != "method"}
    return {**rest, **{f"method.{key}": value for key, value in options.items()}}


def environment() -> dict[str, Any]:
    """Versions and hardware, for the record."""
    import torch

    packages = ("torch", "torchvision", "timm", "lightning-fabric", "numpy")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "adagc": __version__,
        "git": _git(),
        "python": sys.version.split()[0],
        "packages": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git() -> str | None:
    """The commit of a development checkout."""
    source = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"

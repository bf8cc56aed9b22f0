"""On what a run was made: versions and hardware."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from adagc._version import __version__


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

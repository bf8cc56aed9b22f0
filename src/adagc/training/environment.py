"""The environment of a run: versions of the software, and the hardware."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from adagc._version import __version__


def environment() -> dict[str, Any]:
    """The content of environment.json: versions of the packages, commit, processor and GPU.

    The same seed gives the same run only where all of this is equal: the kind of processor, its
    vector instructions and the numbers of threads and processes decide in which order numbers are
    added up, and so how they are rounded.
    """
    import torch

    from adagc import ranks

    # torch says which build it is (2.13.0+cpu); the metadata of some builds do not.
    versions = {"torch": str(torch.__version__)}
    for name in ("torchvision", "timm", "lightning-fabric", "numpy"):
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
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processes": ranks.world(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git() -> str | None:
    """The commit of the git checkout that adagc runs from; None if there is none."""
    source = Path(__file__).parent
    try:
        result = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"

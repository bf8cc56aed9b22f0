"""What a test may expect of the machine: Python and its packages. The rest it declares.

    @pytest.mark.system("pdflatex")             runs the real program; skipped where there is none
    @pytest.mark.system(data="AID_multilabel")  reads real images; skipped where there are none
    @pytest.mark.system                         brings commands of its own: runs anywhere

`tests/bare.py` runs the declared tests once more with everything hidden. So that none is forgotten,
a test that starts or looks for a program without saying so fails. It also finds no program but
those beside Python, on any machine: neither what the software can do without, such as git, nor what
a process that it starts looks for.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("ADAGC_DATA", Path(__file__).parents[2] / "shared" / "data"))

SLURM = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
# Debian's names of the packages that have a program.
PACKAGES = {
    **dict.fromkeys(SLURM, "slurm-wlm"),
    "munged": "munge",
    "setpriv": "util-linux",
    **dict.fromkeys(("mount", "umount"), "mount"),
    "pdflatex": "texlive-latex-base texlive-latex-recommended",
    "git": "git",
    "chromium": "chromium fonts-dejavu-core",
}
# Every run asks git for the commit, and tests/training/test_environment.py does without it. The
# others are asked by numpy.testing and by matplotlib, the first time, and may be missing too.
OPTIONAL = {"git", "lscpu", "fc-list"}
_PATH = os.environ.get("PATH", "")
_PYTHON = str(Path(sys.executable).parent)


def search() -> str:
    """The PATH with the sbin beside each bin: daemons live where a plain user's does not lead."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    beside = [folder.with_name("sbin") for folder in folders if folder.name == "bin"]
    return os.pathsep.join(map(str, [*folders, *beside]))


def find(program: str) -> str | None:
    """Where the program is, daemons included; None if this machine has none."""
    return _which(program, path=search())


def missing(mark: pytest.Mark) -> str | None:
    """Why a test with this mark cannot run here, with the remedy; None if it can."""
    for program in mark.args:
        if find(program) is None:
            install = f"apt-get install {PACKAGES[program]} (make system-deps does it)"
            return f"{program} is not installed: {install}"
    folder = mark.kwargs.get("data")
    if folder is not None and not (DATA / folder).exists():
        return f"no {folder} in {DATA}: set ADAGC_DATA to the folder with real images"
    return None


# -- hooks of pytest ---------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before fixtures that several tests share are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    marks = list(item.iter_markers("system"))
    os.environ["PATH"] = _PATH if marks else _PYTHON
    for mark in marks:
        reason = missing(mark)
        if reason is not None:
            pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    os.environ["PATH"] = _PATH


@pytest.fixture(autouse=True)
def _programs_are_declared(request: pytest.FixtureRequest) -> Iterator[None]:
    _touched.clear()
    yield
    if _touched and request.node.get_closest_marker("system") is None:
        names = ", ".join(sorted(_touched))
        pytest.fail(f"needs or looks for {names}: mark it with @pytest.mark.system, see machine.py")


# -- which programs a test touches -------------------------------------------------------------

_touched: set[str] = set()
_which = shutil.which


def _touch(program: Any) -> None:
    path = Path(os.fsdecode(program))
    if path.parent != Path(sys.executable).parent and path.name not in OPTIONAL:
        _touched.add(path.name)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
        _touch(args[0])
    elif event == "os.system":
        _touch(os.fsdecode(args[0]).split()[0])


def _which_noted(cmd: Any, *args: Any, **kwargs: Any) -> Any:
    _touch(cmd)
    return _which(cmd, *args, **kwargs)


def pytest_configure() -> None:
    sys.addaudithook(_audit)
    shutil.which = _which_noted

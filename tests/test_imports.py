"""Data flows one way: nothing upstream imports anything downstream, and importing is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import adagc

ROOT = Path(adagc.__path__[0])

# A module may import from its own layer's package and from layers above this line of it.
LAYERS = (
    ("types", "errors", "_version", "atomic", "plain", "ranks", "suggest", "progress"),
    ("options", "arguments", "outline", "plugins", "tables", "limits"),
    ("metrics", "losses", "labels", "images", "augment"),
    ("datasets", "inference", "priors", "choice", "windows"),
    ("models",),
    ("text",),
    ("methods",),
    ("training",),
    ("completion",),
    ("web",),
    ("review",),
    ("annotate",),
    ("report", "testing", "estimator"),
    ("bench",),
    ("compare",),
    ("deploy",),
    ("prediction",),
    ("tuning", "embedding"),
    ("paper",),
    ("budget",),
    ("demo", "demo_reben", "console", "commands", "cli", "__main__", "__init__"),
)
# Within a layer packages stand side by side, with these exceptions.
SIDEWAYS = {("labels", "metrics"), ("labels", "images"), ("arguments", "options")}
HEAVY = (
    "torch",
    "timm",
    "torchvision",
    "lightning_fabric",
    "matplotlib",
    "sklearn",
    "tensorboard",
    "optuna",
    "submitit",
    "pyarrow",
    "geopandas",
    "pyogrio",
    "pyproj",
    "shapely",
    "rasterio",
    "lmdb",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "fastapi",
    "uvicorn",
)


def part_of(module: str) -> str:
    """`labels` for adagc.labels.files; `__init__` for adagc itself."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def level(part: str) -> int:
    found = [i for i, parts in enumerate(LAYERS) if part in parts]
    assert found, f"adagc.{part} belongs to no layer: add it to LAYERS"
    return found[0]


def sources() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        names = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of adagc that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            if node.module == "adagc":
                found |= {f"adagc.{alias.name}" for alias in node.names}
            elif node.module:
                found.add(node.module)
    return {name for name in found if name.split(".")[0] == "adagc"}


@pytest.mark.parametrize("module", sources())
def test_nothing_upstream_imports_anything_downstream(module):
    here = part_of(module)
    for imported in imports(sources()[module]):
        there = part_of(imported)
        if here == there:
            continue
        assert level(there) <= level(here), f"{module} imports {imported}, which is downstream"
        if level(here) == level(there) and level(here) < len(LAYERS) - 1 and level(here) > 0:
            assert (here, there) in SIDEWAYS, f"{module} imports {imported} beside it"


def test_every_part_has_a_layer():
    assert len(sources()) > 40
    for module in sources():
        level(part_of(module))


def test_packages_of_methods_do_not_reach_into_training():
    for module, path in sources().items():
        if part_of(module) in ("methods", "models", "images", "datasets", "labels"):
            assert not any(part_of(name) == "training" for name in imports(path)), module


@pytest.mark.parametrize("module", ["adagc", "adagc.cli"])
def test_importing_is_light(module):
    code = f"import {module}, sys; print(*sorted(n for n in {HEAVY!r} if n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []

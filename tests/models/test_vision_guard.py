from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adagc.models import vision

SOURCE = Path(__file__).resolve().parents[2] / "src"


def run(code: str, *paths: Path) -> str:
    search = os.pathsep.join(map(str, [*paths, SOURCE]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stub(folder: Path, *, torchvision: str) -> Path:
    for name, content in (("torchvision", torchvision), ("timm", "import torchvision\n")):
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text(content)
    (folder / "torchvision" / "part.py").write_text("")
    return folder


def test_timm_really_imports_and_only_when_asked_for() -> None:
    code = (
        "import sys, adagc.models as m\n"
        "assert 'timm' not in sys.modules and 'torchvision' not in sys.modules\n"
        "from adagc.models.vision import import_timm\n"
        "assert import_timm() is import_timm()\n"
        "import torch, torchvision\n"
        "assert torchvision.transforms.Compose\n"
        "print(import_timm().is_model('resnet18'), torch.ops.torchvision.nms is not None)\n"
    )
    assert run(code) == "True True"


def test_healthy_torchvision_is_left_alone(tmp_path: Path) -> None:
    stub(tmp_path, torchvision="count = 1\n")
    code = (
        "import sys, torchvision\n"
        "before = torchvision\n"
        "from adagc.models import vision\n"
        "timm = vision.import_timm()\n"
        "print(vision._declared, sys.modules['torchvision'] is before, timm.torchvision is before)"
    )
    assert run(code, tmp_path) == "None True True"


def test_half_imported_modules_are_dropped_and_schemas_stay(tmp_path: Path) -> None:
    # Fails the way the real one does until the operators exist; `part` must be imported afresh.
    broken = (
        "import sys, torch\n"
        "assert 'torchvision.part' not in sys.modules\n"
        "import torchvision.part\n"
        "for name in ('nms', 'qnms'):\n"
        "    torch.library.register_fake(f'torchvision::{name}', lambda d, s, i: d)\n"
    )
    stub(tmp_path, torchvision=broken)
    code = (
        "import gc, torch\n"
        "from adagc.models import vision\n"
        "vision.import_timm(); gc.collect()\n"
        "print(torch.ops.torchvision.nms.default._schema)"
    )
    assert run(code, tmp_path) == (
        "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    )


def test_other_failures_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(f"{name} is out of luck")

    monkeypatch.setattr(vision, "_declared", None)
    monkeypatch.setattr(vision.importlib, "import_module", fail)
    with pytest.raises(RuntimeError, match="torchvision is out of luck"):
        vision.import_timm()
    assert vision._declared is None

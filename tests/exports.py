"""A small run and its export, which several tests share: a plug-in of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from adagc.deploy import Exported, export
from adagc.methods.auto import Auto
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run

CONFIG = RunConfig(
    data="synthetic", scenes=120, size=16, scheme="random", epochs=2, batch_size=32,
    backbone="test_resnet", weights="none", absent="skip", accelerator="cpu",
)  # fmt: skip


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Run:
    return train(CONFIG, Auto(), tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="session")
def exported(small_run, tmp_path_factory) -> Exported:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    return export(small_run, tmp_path_factory.mktemp("models") / "small", program="deepness")


@pytest.fixture(scope="session")
def onnx_file(exported) -> Path:
    return exported.folder / "model.onnx"

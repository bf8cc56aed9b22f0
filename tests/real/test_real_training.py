"""The whole path on real aerial images."""

from __future__ import annotations

import json

import pytest

from adagc.cli import main
from machine import DATA


@pytest.mark.system(data="UCMerced_sample")
def test_uc_merced_from_files_to_report(tmp_path, capsys):
    words = [
        "train", "--data", "ucmerced", "--root", DATA / "UCMerced_sample", "--size", "64",
        "--scheme", "random", "--weights", "registry", "--backbone", "tf_efficientnet_lite0",
        "--absent", "skip", "--cache", tmp_path / "cache", "--method", "AdaGC",
        "--method.force_trigger", "0.5", "--epochs", "2", "--batch_size", "16",
        "--out", tmp_path / "run", "--json",
    ]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["scores"]["images"] == 21
    assert len(result["scores"]["classes"]) == 17
    model = json.loads((tmp_path / "run" / "model.json").read_text())
    # The weights' own normalisation, in 8-bit values.
    assert model["normalisation"]["mean"] == pytest.approx([127.5] * 3)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/") >= 12

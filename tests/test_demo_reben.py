"""`adagc demo --reben`: the same path on fewer patches."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest

from adagc import demo_reben
from adagc.cli import main
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.labels import read_labels


def test_the_path_of_a_bigearthnet_user(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo_reben, "PATCHES", 48)
    monkeypatch.setattr(demo_reben, "SETTINGS", {**demo_reben.SETTINGS, "epochs": 1})
    monkeypatch.setattr(demo_reben.os, "cpu_count", lambda: 1)
    assert main(["demo", "--reben", "--out", str(tmp_path / "demo"), "--json"]) == 0
    said = capsys.readouterr()
    assert "not the whole reBEN" not in said.err  # it is made up
    result = json.loads(said.out)
    assert list(result["steps"]) == [
        "generate", "prepare", "simulate", "train AN", "train Auto", "report",
    ]  # fmt: skip
    assert set(result["scores"]) == {"AN", "Auto"}
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    data = bigearthnet_collection(tmp_path / "demo" / "store")
    assert len(data.images) == result["patches"] == 48
    labels = read_labels(tmp_path / "demo" / "dominant.csv", classes=data.classes)
    assert labels.meta["scheme"] == "dominant"
    rows = [data.images.names.index(name) for name in labels.images]
    assert data.areas is not None
    chosen = data.areas[rows, labels.values.argmax(axis=1)]
    np.testing.assert_allclose(chosen, data.areas[rows].max(axis=1))
    # The labels that were trained on are these.
    used = (tmp_path / "demo" / "an" / "config.yaml").read_text()
    assert "dominant.csv" in used


def spent() -> float:
    """Seconds of CPU of this process and of those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


@pytest.mark.slow
def test_it_takes_less_than_five_minutes(tmp_path, capsys):
    """Of CPU, so that the answer does not depend on what else the machine does."""
    before = spent()
    assert main(["demo", "--reben", "--out", str(tmp_path / "demo"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["patches"] == 400
    assert spent() - before < 300

"""Scenarios whose runs take a second."""

from __future__ import annotations

from pathlib import Path

import yaml

from adagc.bench.scenarios import Scenario, load

TINY = {
    "data": "synthetic", "scenes": 24, "size": 16, "scheme": "random", "backbone": "test_resnet",
    "weights": "none", "epochs": 2, "batch_size": 8, "absent": "skip", "average": 0.9,
}  # fmt: skip


def write_scenario(folder: Path, bench: dict | None = None, **settings) -> Scenario:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"title": "Tiny", "seeds": [0, 1], **(bench or {})}
    text = yaml.safe_dump({**TINY, **settings, "bench": about})
    (folder / "scenario.yaml").write_text(text)
    return load(str(folder))

"""Scenarios whose runs take a second."""

from __future__ import annotations

from pathlib import Path

import yaml

from adagc.bench.scenarios import Scenario, load
from adagc.training.files import chain, read_file

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


def settings_of(path: Path) -> dict:
    """What a YAML file sets, itself or by the files that it is based on."""
    settings: dict = {}
    for file in reversed(chain(path)):
        settings |= read_file(file)
    settings.pop("base", None)
    return settings

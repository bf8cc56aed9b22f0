"""Seconds from the command to the first step of `train` on a cached folder of small images.

`python benchmarks/first_step.py [IMAGES]` opens the data, reads and matches the labels, takes the
statistics of all training images, builds the network and trains on one batch. The first run fills
the cache and is not counted. FIRST_STEP_FOLDER=PATH keeps images and cache for another time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.experiment import train

SIDE, RUNS = 64, 3


class BegunError(Exception):
    """The first step is done."""


def make_images(folder: Path, count: int) -> Path:
    """Random images in a hundred folders, and one of four labels for each; returns the labels."""
    rng = np.random.default_rng(0)
    lines = ["image,label"]
    for i in range(count):
        place = folder / f"{i % 100:02d}"
        place.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((SIDE, SIDE))
        picture.save(place / f"{i:06d}.png", compress_level=1)
        lines.append(f"{i % 100:02d}/{i:06d},{'abcd'[i % 4]}")
    labels = folder.parent / "labels.csv"
    labels.write_text("\n".join(lines) + "\n")
    return labels


def first_step(config: RunConfig, out: Path) -> float:
    """Seconds until the first step is done."""

    def stop(*_: object) -> None:
        raise BegunError

    began = time.perf_counter()
    try:
        train(config, find("AN")(), out, on_step=stop)
    except BegunError:
        return time.perf_counter() - began
    raise AssertionError("no step was made")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as place:
        folder = Path(os.environ.get("FIRST_STEP_FOLDER", place))
        if not (folder / "labels.csv").exists():
            make_images(folder / "images", count)
        config = RunConfig(
            root=str(folder / "images"),
            labels=str(folder / "labels.csv"),
            cache=str(folder / "cache"),
            backbone="test_resnet",
            weights="none",
            batch_size=8,
            accelerator="cpu",
        )
        print(f"filling the cache: {first_step(config, Path(place) / 'run'):.2f} s")
        times = [first_step(config, Path(place) / f"run{i}") for i in range(RUNS)]
    print(f"first step of {count:,} cached images: {min(times):.2f} s (best of {RUNS})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

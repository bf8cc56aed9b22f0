"""How much faster cached images come than decoding the JPEG files each time, at 96 pixels.

    python benchmarks/loader.py [folder of JPEG images]

Prints images per CPU-second and their ratio, then what a whole batch costs (copy, conversion,
augmentation) beside a training step of the lite backbone. Exits with 1 if the cache is less than
five times faster, or if batches could ever make training wait. The files have been read before, so
a slow disk is part of neither side.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from adagc.images.decode import load
from adagc.images.scan import find_images
from adagc.images.store.cache import ImageCache, open_cache

SIZE, BATCH, IMAGES, ROUNDS, WANTED = 96, 64, 2048, 3, 5.0


def generate(folder: Path, count: int = 512) -> Path:
    """JPEG files of 150 pixels with about as much detail as aerial images have."""
    rng = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
        detail = rng.normal(0, 12, (150, 150, 3))
        smooth = np.asarray(coarse.resize((150, 150), Image.Resampling.BICUBIC))
        Image.fromarray((smooth + detail).clip(0, 255).astype(np.uint8)).save(
            folder / f"{i:04d}.jpg", quality=90
        )
    return folder


def rate(read: Callable[[np.ndarray], np.ndarray], batches: Sequence[np.ndarray]) -> float:
    """Images per CPU-second over all rounds, the first touch of the mapped file included.

    Not by the clock: on a busy machine the short loop slips between other jobs, the long one
    cannot, and the ratio would flatter the cache.
    """
    began = time.process_time()
    for _ in range(ROUNDS):
        for rows in batches:
            read(rows)
    return ROUNDS * sum(map(len, batches)) / (time.process_time() - began)


def batch_and_step(folder: Path, files: Sequence[str], cache: ImageCache) -> tuple[float, float]:
    """CPU milliseconds of one batch from the training loader, and of one AN step on it."""
    import torch

    from adagc.images.cached import CachedScenes
    from adagc.methods import find
    from adagc.models import ModelSpec, build
    from adagc.training.batches import Batches
    from adagc.types import Progress

    scenes = CachedScenes(cache, tuple(map(str, range(len(files)))))
    observed = torch.zeros(len(files), 16, dtype=torch.int8)
    batches = Batches(
        scenes, np.arange(len(files)), observed, truth=None, batch_size=32, seed=0,
        how="dihedral", device=torch.device("cpu"),
    )  # fmt: skip
    began = time.process_time()
    batch = [*batches.epoch(1)][-1]
    per_batch = (time.process_time() - began) / len(batches)
    classes = tuple(f"class {i}" for i in range(16))
    network = build(
        ModelSpec("tf_efficientnet_lite0", scenes.shape, classes, scenes.bands), seed=0
    ).train()
    method, optimiser = find("AN")(), torch.optim.Adam(network.parameters())
    for step in range(4):
        if step == 1:  # the first one warms up
            began = time.process_time()
        method.loss(network, batch, Progress(1, 1, step, 4)).total.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return 1000 * per_batch, 1000 * (time.process_time() - began) / 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, help="JPEG images; default: AID, else made")
    folder: Path | None = parser.parse_args().folder
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    aid = Path(os.environ.get("ADAGC_DATA", shared)) / "AID_multilabel"
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None and aid.is_dir():
            folder = aid
        elif folder is None:
            (Path(temporary) / "images").mkdir()
            folder = generate(Path(temporary) / "images")
        files = find_images(folder)[:IMAGES]
        cache = open_cache(folder, files, size=SIZE, cache=Path(temporary) / "cache")
        order = np.random.default_rng(0).permutation(len(files))
        batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
        cached = rate(cache.gather, batches)
        decoded = rate(
            lambda rows: np.stack([load(folder / files[row], SIZE) for row in rows]), batches
        )
        batch_ms, step_ms = batch_and_step(folder, files, cache)
    ratio = cached / decoded
    print(f"{folder.name}: {len(files)} images at {SIZE} pixels, one thread")
    print(f"cached   {cached:10.0f} images per CPU-second")
    print(f"decoded  {decoded:10.0f} images per CPU-second")
    print(f"ratio    {ratio:10.1f}  (wanted: {WANTED:g})")
    print(f"a batch of 32 takes {batch_ms:.1f} ms of CPU, a training step {step_ms:.0f} ms")
    return 0 if ratio >= WANTED and batch_ms < step_ms else 1


if __name__ == "__main__":
    sys.exit(main())

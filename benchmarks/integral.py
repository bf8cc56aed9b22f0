"""Time of the random annotator's integral, forward and backward, as a share of a training step.

The step is AN's with ResNet-34 in batches of 32, with the 19 classes of reBEN and with 200. Images
are smaller than those of reBEN (120 pixels), which makes the step shorter: shares are upper bounds.

    python benchmarks/integral.py [--rounds 5] [--size 64]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from adagc.losses import random_annotator
from adagc.methods import find
from adagc.models import ModelSpec, build
from adagc.types import Batch, Progress, Task

LIMITS = {19: 0.02, 200: 0.05}  # classes to the largest share
BATCH, BANDS = 32, 14
REPEATS = 20  # of the integral, which is too short to be timed alone


def training_step(classes: int, size: int) -> Callable[[], float]:
    """A function that takes one step of AN and returns its seconds."""
    names = tuple(f"class {i}" for i in range(classes))
    bands = tuple(f"band {i}" for i in range(BANDS))
    method = find("AN")()
    network = build(ModelSpec("resnet34", (BANDS, size, size), names, bands), seed=0).train()
    observed = torch.zeros(BATCH, classes, dtype=torch.int8)
    observed[:, 0] = 1
    method.setup(network, Task(names, observed, epochs=1, steps_per_epoch=1, seed=0))
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(BATCH, BANDS, size, size, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)  # as the loop hands them out
    batch = Batch(images, observed, torch.arange(BATCH), generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)

    def take() -> float:
        began = time.perf_counter()
        method.loss(network, batch, Progress(1, 1, 1, 1)).total.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return time.perf_counter() - began

    return take


def integral(classes: int) -> float:
    """Seconds of one integral and its gradient."""
    logits = torch.randn(BATCH, classes, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    began = time.perf_counter()
    for _ in range(REPEATS):
        (random_annotator(logits)[:, 0].mean()).backward()
    return (time.perf_counter() - began) / REPEATS


def main() -> int:
    """One line per number of classes; 1 if a share is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    size = options.size
    print(f"ResNet-34, {BANDS} x {size} x {size}, batch {BATCH}, {torch.get_num_threads()} threads")
    missed = False
    for classes, limit in LIMITS.items():
        take = training_step(classes, size)
        take(), integral(classes)  # warm up
        shares = []
        for _ in range(options.rounds):  # side by side: the speed of the machine changes
            before, ours, after = take(), integral(classes), take()
            shares.append(2 * ours / (before + after))
        share = statistics.median(shares)
        missed = missed or share > limit
        print(f"{classes:4} classes: {share:6.2%} of a step (at most {limit:.0%})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

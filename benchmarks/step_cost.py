"""Time and memory of one AdaGC calibration step relative to one AN step, in one run.

ResNet-34 on 14 x 120 x 120 patches in batches of 32, as on reBEN. The paper's arithmetic is five
forward passes against three, 1.67.

    python benchmarks/step_cost.py [--rounds 20] [--batch 32]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from adagc.methods import find
from adagc.methods.base import Method
from adagc.models import Classifier, ModelSpec, build
from adagc.types import Batch, Progress, Task

LIMIT = 1.6
CLASSES = tuple(f"class {i}" for i in range(19))
BANDS = tuple(f"band {i}" for i in range(14))


def prepare(title: str, batch: int) -> tuple[Classifier, Method, Batch, torch.optim.Optimizer]:
    """A network and a method in the state whose step is to be measured."""
    spec = ModelSpec("resnet34", (14, 120, 120), CLASSES, BANDS)
    network = build(spec, seed=0).train()
    observed = torch.zeros(batch, 19, dtype=torch.int8)
    observed[torch.arange(batch), torch.arange(batch) % 19] = 1
    method = find(title)()
    method.setup(network, Task(CLASSES, observed, epochs=10, steps_per_epoch=1, seed=0))
    if title == "AdaGC":
        method.triggered_after = 1  # type: ignore[assignment]
    images = torch.randn(batch, 14, 120, 120, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)  # as the loop hands them out
    data = Batch(images, observed, torch.arange(batch), torch.Generator().manual_seed(0))
    return network, method, data, torch.optim.Adam(network.parameters(), lr=1e-4)


def step(
    network: Classifier, method: Method, data: Batch, optimiser: torch.optim.Optimizer
) -> None:
    """One optimiser step, as the loop takes it."""
    method.loss(network, data, Progress(2, 10, 0, 1)).total.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    method.after_step(network)


def peak_memory(title: str, batch: int) -> float:
    """MiB that a fresh process needs for its steps beyond what it needed before them."""
    command = [sys.executable, __file__, "--batch", str(batch), "--memory-of", title]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(found.stdout)


def _peak() -> float:
    """MiB, from the kernel: what `resource` says of a child includes its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _report_memory(title: str, batch: int) -> None:
    before = _peak()
    prepared = prepare(title, batch)
    for _ in range(3):
        step(*prepared)
    print(_peak() - before)


def main() -> int:
    """Alternate the two steps, so that a busy machine disturbs both alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--memory-of", default=None)
    options = parser.parse_args()
    if options.memory_of:
        _report_memory(options.memory_of, options.batch)
        return 0
    runs = {title: prepare(title, options.batch) for title in ("AN", "AdaGC")}
    times: dict[str, list[float]] = {title: [] for title in runs}
    for round_number in range(options.rounds + 1):
        for title, prepared in runs.items():
            began = time.perf_counter()
            step(*prepared)
            if round_number:  # the first one warms up
                times[title].append(time.perf_counter() - began)
    # Steps side by side share the mood of the machine: compare within a round, not across.
    ratios = [ours / an for an, ours in zip(times["AN"], times["AdaGC"], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    an, ours = (statistics.median(times[title]) for title in ("AN", "AdaGC"))
    print(f"ResNet-34, 14 x 120 x 120, batch {options.batch}, {torch.get_num_threads()} threads")
    print(f"AN step     {an * 1000:8.0f} ms (median of {options.rounds})")
    print(f"AdaGC step  {ours * 1000:8.0f} ms")
    print(
        f"ratio       {ratio:8.2f}    median within a round, quartiles {low:.2f} and {high:.2f}"
        f" (limit {LIMIT})"
    )
    base, more = (peak_memory(title, options.batch) for title in ("AN", "AdaGC"))
    print(f"peak memory {base:8.0f} MiB for AN, {more:.0f} MiB for AdaGC: {more / base - 1:+.1%}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())

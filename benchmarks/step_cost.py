"""Time and memory of one step of every method relative to one AN step, in one run.

ResNet-34 on 14 x 120 x 120 patches in batches of 32, as on reBEN; methods with stages in their
dearest one, each with an average of its network, as in a bench: its own or the trainer's. What a
method may cost is its arithmetic, the passes it makes (`Method.cost`: a backward pass counts as two
forward passes), plus 15 %; some have a limit of their own, and a limit of memory.

    python benchmarks/step_cost.py [--methods AdaGC RCML] [--rounds 12] [--batch 32] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adagc.methods import find, registry
from adagc.methods.base import Method, reported_by
from adagc.methods.completion import Completion
from adagc.methods.state import AveragedNetwork
from adagc.metrics import score
from adagc.models import Classifier, ModelSpec, build
from adagc.models.backbones import positions
from adagc.types import Batch, NetworkRole, Progress, Task, with_role

SLACK = 1.15
LIMITS = {
    "AdaGC": 1.6,
    "Random label": 1.05,
    "Area label": 1.05,
    "Random cover": 1.05,
    "Cover label": 1.05,
    "Completion": 1.1,
    "Auto": 1.1,
}
# Relative to AN: likelihood methods see the images once and keep no more than AN does.
MEMORY = {
    "Random label": 1.02,
    "Area label": 1.02,
    "Random cover": 1.02,
    "Cover label": 1.02,
    "Completion": 1.02,
    "Auto": 1.02,
}
DEAREST: dict[str, dict[str, Any]] = {"AdaGC": {"trigger_epoch": 1}}  # by an option, else by epoch
SHAPE = (14, 120, 120)
CLASSES = tuple(f"class {i}" for i in range(19))
BANDS = tuple(f"band {i}" for i in range(14))
EPOCHS = 10
LATE = Progress(EPOCHS, EPOCHS, EPOCHS - 1, 1)


@dataclass
class Step:
    """A network and a method in the state whose step is to be measured."""

    network: Classifier
    method: Method
    batch: Batch
    optimiser: torch.optim.Optimizer
    averaged: AveragedNetwork | None  # the trainer's, unless the method has its own

    @classmethod
    def prepare(cls, title: str, size: int) -> Step:
        """Everything but the step itself."""
        method = find(title)(**DEAREST.get(title, {}))
        observed = torch.zeros(size, 19, dtype=torch.int8)
        observed[torch.arange(size), torch.arange(size) % 19] = 1
        truth = (observed > 0).float()
        task = Task(
            CLASSES, observed, epochs=EPOCHS, steps_per_epoch=1, seed=0,
            truth=truth, priors=truth.mean(0), text=torch.eye(19),
            positions=positions("resnet34", SHAPE),
            fresh=lambda seed: build(spec, seed=seed).train(),
        )  # fmt: skip
        method.check(task)  # before it is asked for a head: Auto looks at the positions
        spec = ModelSpec("resnet34", SHAPE, CLASSES, BANDS, head=method.head())
        network = build(spec, seed=0).train()
        method.setup(network, task)
        method.train()
        if title in DEAREST:
            scores = score(truth.bool(), truth, absent="skip")
            method.end_epoch(scores, Progress(1, EPOCHS, 1, 1))
        if isinstance(method, Completion):
            method.completed.write(torch.arange(size), truth)
            method.completed_after = 1
        images = torch.randn(size, *SHAPE, generator=torch.Generator().manual_seed(0))
        batch = Batch(
            images.contiguous(memory_format=torch.channels_last),  # as the loop hands them out
            observed,
            torch.arange(size),
            torch.Generator().manual_seed(0),
            truth,
        )
        groups = method.parameter_groups(network, 1e-4)
        own = with_role(reported_by(method, network), NetworkRole.TRAINED) is not None
        averaged = None if own else AveragedNetwork(network, 0.999)
        optimiser = torch.optim.Adam(groups, lr=1e-4, fused=True)
        return cls(network, method, batch, optimiser, averaged)

    def take(self) -> float:
        """One optimiser step as the loop takes it; seconds."""
        began = time.perf_counter()
        self.method.loss(self.network, self.batch, LATE).total.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.method.after_step(self.network)
        if self.averaged is not None:
            self.averaged.update(self.network)
        return time.perf_counter() - began


def compare(title: str, size: int, rounds: int) -> list[float]:
    """Ratios of a method's step to an AN step within each round.

    Steps side by side share the mood of the machine: compare within a round, not across.
    """
    plain, other = Step.prepare("AN", size), Step.prepare(title, size)
    ratios = []
    for number in range(rounds + 1):
        before, ours, after = plain.take(), other.take(), plain.take()
        if number:  # the first one warms up
            ratios.append(2 * ours / (before + after))
    return ratios


def peak_memory(title: str, size: int) -> float:
    """MiB that a fresh process needs for its steps beyond what it needed before them."""
    command = [sys.executable, __file__, "--batch", str(size), "--memory-of", title]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(found.stdout)


def _peak() -> float:
    """MiB, from the kernel: what `resource` says of a child includes its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _report_memory(title: str, size: int) -> None:
    before = _peak()
    prepared = Step.prepare(title, size)
    for _ in range(3):
        prepared.take()
    print(_peak() - before)


def main() -> int:
    """Every method, one line each; 1 if one is too slow or too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=[t for t in registry() if t != "AN"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", default=None)
    options = parser.parse_args()
    if options.memory_of:
        _report_memory(options.memory_of, options.batch)
        return 0
    if not options.json:
        threads = torch.get_num_threads()
        print(f"ResNet-34, 14 x 120 x 120, batch {options.batch}, {threads} threads; AN is 1")
        print(f"{'method':16} {'time':>6} {'quartiles':>12} {'limit':>6} {'memory':>8}")
    base = peak_memory("AN", options.batch)
    slow, large = [], []
    for name in options.methods:
        method = find(name)
        limit = LIMITS.get(method.title, SLACK * method.cost)
        low, ratio, high = statistics.quantiles(
            compare(method.title, options.batch, options.rounds), n=4
        )
        memory = peak_memory(method.title, options.batch) / base
        if ratio > limit:
            slow.append(method.title)
        allowed = MEMORY.get(method.title)
        if allowed is not None and memory > allowed:
            large.append(method.title)
        if options.json:
            line = {"method": method.title, "ratio": ratio, "low": low, "high": high}
            print(json.dumps({**line, "limit": limit, "memory": memory}), flush=True)
        else:
            print(
                f"{method.title:16} {ratio:6.2f} {low:6.2f}-{high:.2f} {limit:6.2f} {memory:8.2f}",
                flush=True,
            )
    for word, names in (("slow", slow), ("large (limit 1.02)", large)):
        if names and not options.json:
            print(f"too {word}: {', '.join(names)}")
    return 1 if slow or large else 0


if __name__ == "__main__":
    raise SystemExit(main())

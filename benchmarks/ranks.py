"""What more ranks save: images read per rank, and time per step, in one run.

ResNet-34 on 14 x 120 x 120 patches in batches of 32, as on reBEN; AN, and AdaGC in its calibration
stage (three passes, Mixup). Every rank has one core. One rank on one core and two ranks on two
cores take turns, and are compared within a round, because machines change their speed.

    python benchmarks/ranks.py [--methods AN AdaGC] [--ranks 1 2 4] [--rounds 4] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from adagc.images.array import ArrayScenes
from adagc.methods import find
from adagc.metrics import score
from adagc.models import ModelSpec, build
from adagc.training.batches import Batches
from adagc.training.settings import Settings
from adagc.training.trainer import Trainer
from adagc.types import Progress, Task

LIMIT = 0.6  # of one rank's time per step, for two ranks on two cores
CLASSES = tuple(f"class {i}" for i in range(19))
BANDS = tuple(f"band {i}" for i in range(14))
LATE: dict[str, dict[str, Any]] = {"AdaGC": {"trigger_epoch": 1}}


class Counted(ArrayScenes):
    """Counts the images that are read."""

    read = 0

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """As its parent's."""
        self.read += len(rows)
        return super().gather(rows)


def work(
    rank: int,
    world: int,
    port: int,
    core: int,
    title: str,
    batch: int,
    steps: int,
    pipe: Connection,
) -> None:
    """One rank: warm up for a step, then measure."""
    os.sched_setaffinity(0, [core])
    torch.set_num_threads(1)
    if world > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
            timeout=timedelta(minutes=10),
        )  # fmt: skip
    method = find(title)(**LATE.get(title, {}))
    spec = ModelSpec("resnet34", (14, 120, 120), CLASSES, BANDS, head=method.head())
    network = build(spec, seed=0)
    count = batch * (steps + 1)
    observed = torch.zeros(count, 19, dtype=torch.int8)
    observed[torch.arange(count), torch.arange(count) % 19] = 1
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4000, (64, 14, 120, 120), dtype=np.uint16)
    images = Counted(values, bands=BANDS)
    task = Task(CLASSES, observed, epochs=10, steps_per_epoch=steps + 1, seed=0)
    method.setup(network, task)
    method.train()
    network.train()
    scores = score(observed.numpy() > 0, observed.numpy() * 0.5, absent="skip")
    method.end_epoch(scores, Progress(1, 10, steps, steps))
    settings = Settings(batch_size=batch, learning_rate=1e-4, accelerator="cpu")
    trainer = Trainer(network, method, settings, Fabric(accelerator="cpu", devices=1))
    batches = Batches(
        images, np.arange(count) % 64, observed, truth=None, batch_size=batch, seed=0,
        how="dihedral", device=torch.device("cpu"),
    )  # fmt: skip
    times = []
    began = time.perf_counter()
    for step, one in enumerate(batches.epoch(2)):
        trainer.step(one, Progress(2, 10, steps + step, steps), batches)
        now = time.perf_counter()
        times.append(now - began)
        began = now
    pipe.send((statistics.median(times[1:]), images.read / len(batches)))


def measure(world: int, title: str, batch: int, steps: int) -> tuple[float, float]:
    """Seconds per step and images read per rank and step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    crew, pipes = [], []
    for rank in range(world):
        ours, theirs = context.Pipe()
        core = cores[rank % len(cores)]
        told = (rank, world, port, core, title, batch, steps, theirs)
        process = context.Process(target=work, args=told)
        process.start()
        crew.append(process)
        pipes.append(ours)
    found = [pipe.recv() for pipe in pipes]
    for process in crew:
        process.join()
    return max(seconds for seconds, _ in found), max(read for _, read in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=["AN", "AdaGC"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    report = {}
    for title in options.methods:
        seconds: dict[int, list[float]] = {world: [] for world in options.ranks}
        read: dict[int, float] = {}
        for number in range(options.rounds):
            for world in options.ranks:
                if world > cores and number:
                    continue  # ranks that share a core are only counted
                taken, read[world] = measure(world, title, options.batch, options.steps)
                seconds[world].append(taken)
        ratios = [
            two / one for one, two in zip(seconds.get(1, []), seconds.get(2, []), strict=False)
        ]
        report[title] = {
            "images_read_per_rank_and_step": read,
            "seconds_per_step": {world: statistics.median(s) for world, s in seconds.items()},
            "two_ranks_to_one": statistics.median(ratios) if ratios else None,
            "rounds": ratios,
        }
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        for title, found in report.items():
            print(f"{title}, batches of {options.batch}:")
            for world, images in found["images_read_per_rank_and_step"].items():
                shared = "  (ranks share cores)" if world > cores else ""
                print(
                    f"  {world} rank(s): {images:5.1f} images read per rank and step,"
                    f" {found['seconds_per_step'][world]:.2f} s per step{shared}"
                )
            if found["two_ranks_to_one"] is not None:
                spread = ", ".join(f"{ratio:.2f}" for ratio in found["rounds"])
                print(
                    f"  two ranks on two cores against one on one: {found['two_ranks_to_one']:.2f}"
                    f" (rounds {spread}; wanted at most {LIMIT})"
                )
    missed = [t for t, f in report.items() if (f["two_ranks_to_one"] or 0) > LIMIT]
    if missed:
        print(f"above the limit of {LIMIT}: {', '.join(missed)}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()

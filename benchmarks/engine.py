"""Two workers against one on a bench of short runs, and what a run costs besides training.

    python benchmarks/engine.py [--runs 40] [--epochs 3]

Measured inside one call, on made-up scenes and on embeddings, against one worker on one core (what
the engine itself loses: at most 0.6) and against one worker that has both cores, as `--workers 1`
gives it: there its threads help, and the ratio says how much of the second core they waste. A run
may cost 2 seconds besides training.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from adagc.bench.engines import LocalEngine
from adagc.bench.jobs import Job, plan
from adagc.bench.scenarios import Scenario, load
from adagc.labels import LabelTable, write_labels

RATIO_LIMIT = 0.6
OVERHEAD_LIMIT = 2.0
METHODS = ("AN", "WAN", "LL-R", "AdaGC")
EMBEDDINGS = 1_800, 1_280, 17  # images, length, classes: AID's


def embeddings(folder: Path) -> Scenario:
    """Features of nothing: every class a direction, five classes per image, and noise."""
    rows, width, classes = EMBEDDINGS
    random = np.random.default_rng(0)
    truth = random.random((rows, classes)) < 5 / classes
    truth[np.arange(rows), random.integers(classes, size=rows)] = True
    values = truth @ random.normal(size=(classes, width)) + random.normal(size=(rows, width))
    folder.mkdir(parents=True)
    np.save(folder / "embeddings.npy", values.astype(np.float32))
    names = tuple(f"image{row}" for row in range(rows))
    (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    table = LabelTable(names, tuple(f"class{c}" for c in range(classes)), truth.astype(np.int8))
    write_labels(table, folder / "truth.csv")
    settings = {
        "data": "array", "root": str(folder), "truth": str(folder / "truth.csv"),
        "scheme": "random", "backbone": "mlp", "dropout": 0.5, "average": 0.999,
    }  # fmt: skip
    (folder / "scenario.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return load(str(folder))


def jobs(scenario: Scenario, out: Path, runs: int, epochs: int) -> list[Job]:
    scenario = scenario.with_settings(epochs=epochs)
    return plan(scenario, METHODS, out, range(-(-runs // len(METHODS))))[:runs]


class Crew(NamedTuple):
    """How a bench is done."""

    workers: int
    cores: int  # of all workers together


ALONE, WHOLE, PAIR = Crew(1, 1), Crew(1, 2), Crew(2, 2)


def wall(crew: Crew, planned: list[Job]) -> float:
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[: crew.cores])
    try:
        began = time.perf_counter()
        LocalEngine(crew.workers).run(planned, lambda _: None)
        seconds = time.perf_counter() - began
    finally:
        os.sched_setaffinity(0, mine)
    broken = [job.name for job in planned if job.status != "finished"]
    if broken:
        raise SystemExit(f"{len(broken)} runs failed, the first: {broken[0]}")
    return seconds


def overhead(job: Job) -> float:
    """Seconds of a run that are not training: opening data, saving, testing."""
    run = Path(job.folder)
    trained = json.loads((run / "model.json").read_text())["extra"]["training_seconds"]
    return float(json.loads((run / "bench.json").read_text())["seconds_of_this_process"] - trained)


def compare(name: str, scenario: Scenario, out: Path, runs: int, epochs: int) -> bool:
    """Print the numbers; whether they are within their limits."""
    times: dict[Crew, float] = {}
    for crew in (ALONE, WHOLE, PAIR):
        planned = jobs(scenario, out / f"{name}-{crew.workers}-{crew.cores}", runs, epochs)
        times[crew] = wall(crew, planned)
        print(f"{name}: {runs} runs, {crew.workers} worker(s) on {crew.cores} core(s)", end="")
        print(f" {times[crew]:.1f} s", flush=True)
    # The first run of a worker opens the data; the others find it open.
    extra = statistics.median(map(overhead, planned[2:]))
    ratio = times[PAIR] / times[ALONE]
    print(f"  two workers against one core {ratio:.2f} (at most {RATIO_LIMIT})")
    print(f"  two workers against one that has both cores {times[PAIR] / times[WHOLE]:.2f}")
    print(f"  besides training {extra:.2f} s per run (at most {OVERHEAD_LIMIT})", flush=True)
    return ratio <= RATIO_LIMIT and extra <= OVERHEAD_LIMIT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=3)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        scenarios = {"scenes": load("demo-random"), "embeddings": embeddings(out / "data")}
        good = [
            compare(name, scenario, out, told.runs, told.epochs)
            for name, scenario in scenarios.items()
        ]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())

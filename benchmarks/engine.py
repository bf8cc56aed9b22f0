"""Two workers against one on a bench of short runs, and what a run costs besides training.

    python benchmarks/engine.py [--runs 40] [--epochs 3]

Measured inside one call, on made-up scenes and on embeddings. One worker has all cores, two have
half of them each, so the ratio also says how little a network gains from threads: on two free cores
it should be at most 0.6. A run may cost 2 seconds besides training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

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


def wall(workers: int, planned: list[Job]) -> float:
    began = time.perf_counter()
    LocalEngine(workers).run(planned, lambda _: None)
    broken = [job.name for job in planned if job.status != "finished"]
    if broken:
        raise SystemExit(f"{len(broken)} runs failed, the first: {broken[0]}")
    return time.perf_counter() - began


def overhead(job: Job) -> float:
    """Seconds of a run that are not training: opening data, saving, testing."""
    run = Path(job.folder)
    trained = json.loads((run / "model.json").read_text())["extra"]["training_seconds"]
    return float(json.loads((run / "bench.json").read_text())["seconds_of_this_process"] - trained)


def compare(name: str, scenario: Scenario, out: Path, runs: int, epochs: int) -> bool:
    """Print both numbers; whether they are within their limits."""
    sets = [jobs(scenario, out / name / str(workers), runs, epochs) for workers in (1, 2)]
    times = [wall(workers, planned) for workers, planned in zip((1, 2), sets, strict=True)]
    # The first run of a process opens the data; the others find it open.
    ratio, extra = times[1] / times[0], statistics.median(map(overhead, sets[0][1:]))
    print(f"{name}: {runs} runs, {times[0]:.1f} s with 1 worker, {times[1]:.1f} s with 2")
    print(f"  ratio {ratio:.2f} (at most {RATIO_LIMIT})")
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

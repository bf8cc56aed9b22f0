"""Two workers against one on a bench of short runs, and what a run costs besides training.

    python benchmarks/engine.py [--runs 40] [--epochs 3]

Both numbers are taken inside one call on made-up scenes; the first should be at most 0.6 on two
free cores, the second under 2 seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from adagc.bench.engines import LocalEngine
from adagc.bench.jobs import Job, plan
from adagc.bench.scenarios import load

RATIO_LIMIT = 0.6
OVERHEAD_LIMIT = 2.0
METHODS = ("AN", "WAN", "LL-R", "AdaGC")


def jobs(out: Path, runs: int, epochs: int) -> list[Job]:
    scenario = load("demo-random").with_settings(epochs=epochs)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=3)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = [jobs(Path(folder) / str(n), told.runs, told.epochs) for n in (1, 2)]
        times = [wall(n, planned) for n, planned in zip((1, 2), sets, strict=True)]
        # The first run of a process opens the data; the others find it open.
        warm = [overhead(job) for job in sets[0][1:]]
    ratio, extra = times[1] / times[0], statistics.median(warm)
    print(f"{told.runs} runs: {times[0]:.1f} s with 1 worker, {times[1]:.1f} s with 2")
    print(f"ratio {ratio:.2f} (at most {RATIO_LIMIT})")
    print(f"besides training: {extra:.2f} s per run (at most {OVERHEAD_LIMIT})")
    return int(ratio > RATIO_LIMIT or extra > OVERHEAD_LIMIT)


if __name__ == "__main__":
    sys.exit(main())

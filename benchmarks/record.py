"""Run benchmarks and keep what they print, from which docs/results/speed.md is written.

    python benchmarks/record.py [NAME ...]      (all of them; on an otherwise idle machine)

Each is written to docs/results/data/speed.json when it ends, so that single ones can be run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from adagc.atomic import write_text
from adagc.training.environment import environment

FOLDER = Path(__file__).parent
RECORD = FOLDER.parent / "docs" / "results" / "data" / "speed.json"
BENCHMARKS: dict[str, list[str]] = {
    "metrics": [],
    "loader": [],
    "step_cost": ["--rounds", "4"],
    "integral": [],
    "ranks": ["--rounds", "4"],
    "engine": [],
    "first_step": [],
    "start_up": [],
    "windows": [],
    "annotate": [],
    "predict": [],
    "estimator": [],
    "complete": [],
}


def run(name: str) -> dict[str, object]:
    """What a benchmark printed, whether it met its limits, and where it ran."""
    words = [f"{name}.py", *BENCHMARKS[name]]
    began = time.perf_counter()
    command = [sys.executable, str(FOLDER / words[0]), *words[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return {
        "command": f"python benchmarks/{' '.join(words)}",
        "printed": done.stdout.strip().splitlines(),
        "met": done.returncode == 0,
        "seconds": round(time.perf_counter() - began),
        "machine": environment(),
    }


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []])
    for name in parser.parse_args().names or BENCHMARKS:
        found = run(name)
        known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
        write_text(RECORD, json.dumps({**known, name: found}, indent=1) + "\n")
        print(f"{name}: {found['seconds']} s, limits {'met' if found['met'] else 'missed'}")


if __name__ == "__main__":
    main()

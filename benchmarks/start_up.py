"""CPU seconds until `import adagc` and `adagc --help` are done (limits 0.2 and 0.6)."""

from __future__ import annotations

import resource
import subprocess
import sys

LIMITS = {"import adagc": 0.2, "adagc --help": 0.6}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a child, the least of five runs."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, used)
    return best


def main() -> int:
    commands = {
        "import adagc": [sys.executable, "-c", "import adagc"],
        "adagc --help": [sys.executable, "-m", "adagc", "--help"],
    }
    worst = 0
    for name, command in commands.items():
        seconds = cpu_seconds(command)
        print(f"{name:14} {seconds:.3f} s of CPU (limit {LIMITS[name]})")
        worst |= seconds > LIMITS[name]
    return int(worst)


if __name__ == "__main__":
    raise SystemExit(main())

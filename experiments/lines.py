"""Records of experiments with one JSON object per line, which are resumed by reading them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "data"

Line = Mapping[str, Any]


def read(path: Path) -> list[Line]:
    """The lines of a record; none if there is no such file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, line: Line) -> None:
    """Add a line to a record."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def made(records: Sequence[Line]) -> str:
    """With what the trainings of these lines were made, in a sentence."""
    machines = [one["machine"] for one in records]
    processors, torch, commits = (
        sorted({str(value) for value in values})
        for values in (
            [one["processor"] for one in machines],
            [one["packages"]["torch"] for one in machines],
            [one["git"].partition("-")[0] for one in machines],
        )
    )
    many = f"{len(commits)} commits around {commits[0]}, which differ in other parts"
    return (
        f"One thread each on {', '.join(processors)}, torch {', '.join(torch)},"
        f" {many if len(commits) > 1 else f'commit {commits[0]}'}."
    )

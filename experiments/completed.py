"""What completed labels are worth: docs/results/complete.md, by benchmarks/complete.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from lines import RECORDS, Line, read
from words import one

from adagc.methods import find

TITLES = {"aid": "AID", "ucm": "UC Merced"}
PRECISION, RECALL = 80.0, 50.0  # per cent that were wanted of Auto
COLUMNS = {
    "precision": "precision",
    "recall": "recall",
    "precision_at_recall": "precision at a recall of 50",
    "recall_at_precision": "recall at a precision of 80",
    "absent_right": "absent right",
    "unsure": "unsure",
}
CLEANLAB = {
    "cleanlab_precision": "precision",
    "cleanlab_recall": "recall",
    "cleanlab_accuses": "observed labels called wrong",
}


def path_of(data: str) -> Path:
    """The record of a data set."""
    return RECORDS / f"complete-{data}.jsonl"


def lines() -> list[Line]:
    """All completions that are recorded."""
    return [{"data": data, **line} for data in TITLES for line in read(path_of(data))]


def _groups(found: Sequence[Line]) -> dict[tuple[str, str, str], list[Line]]:
    """Completions of the same data by the same method, in-sample or out of fold, by seed."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in sorted(found, key=lambda line: line["seed"]):
        groups.setdefault((line["data"], line["method"], line["sample"]), []).append(line)
    return groups


def _spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation in per cent, of what there is."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    if len(known) == 1:
        return one(known[0])
    return f"{one(statistics.fmean(known))} ± {one(statistics.stdev(known))}"


def table(found: Sequence[Line], columns: dict[str, str]) -> str:
    """Means and standard deviations over seeds, a row per data set, method and probabilities."""
    head = ["data", "method", "probabilities", *columns.values()]
    rows = [f"| {' | '.join(head)} |", f"|---|---|---|{'---:|' * len(columns)}"]
    for (data, method, sample), own in _groups(found).items():
        cells = [_spread([line[name] for line in own]) for name in columns]
        rows.append(f"| {TITLES[data]} | {find(method).title} | {sample} | {' | '.join(cells)} |")
    return "\n".join(rows)


def by_seed(found: Sequence[Line], names: Sequence[str] = ("precision", "recall")) -> str:
    """Every seed of the tables above: "86.9 / 58.4", in the order of `names`."""
    seeds = sorted({line["seed"] for line in found})
    rows = [
        f"| data | method | probabilities | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        f"|---|---|---|{'---:|' * len(seeds)}",
    ]
    for (data, method, sample), own in _groups(found).items():
        of = {line["seed"]: line for line in own}
        cells = [
            " / ".join(one(100 * (of[seed][name] or 0.0)) for name in names) if seed in of else ""
            for seed in seeds
        ]
        rows.append(f"| {TITLES[data]} | {find(method).title} | {sample} | {' | '.join(cells)} |")
    return "\n".join(rows)


def verdict(found: Sequence[Line]) -> str:
    """For which data Auto reaches what was wanted by its own decision, and for which not."""
    reached: list[str] = []
    missed: list[str] = []
    for (data, method, sample), own in _groups(found).items():
        if method != "auto":
            continue
        means = [100 * statistics.fmean(line[n] or 0.0 for line in own) for n in COLUMNS][:2]
        said = f"{TITLES[data]} {sample} ({one(means[0])} / {one(means[1])})"
        (reached if means[0] >= PRECISION and means[1] >= RECALL else missed).append(said)
    parts = [f"reached on {', '.join(reached)}"] if reached else []
    parts += [f"missed on {', '.join(missed)}"] if missed else []
    return "; ".join(parts)

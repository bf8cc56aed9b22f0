"""Which view of the runs is the most certain one: the reasons for `adagc.training.views.DEFAULT`.

Test mAP in the four views, from the published tables: the mean over methods, the deviation over
seeds pooled over methods, and for how many methods a view is the best of the four. Methods that
train with clean labels are left out, and so is the one that this project proposes: a view must not
be chosen because it flatters.

    python experiments/views.py
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path

from adagc.methods import outlines
from adagc.training.views import VIEWS

DATA = Path(__file__).parents[1] / "docs" / "results" / "data"
KEY = "mean_average_precision"
Cells = dict[str, dict[str, tuple[float, float | None]]]  # method -> view -> mean, deviation


def from_runs(path: Path) -> Cells:
    """Means over the runs in a file with one run per line."""
    values: dict[str, dict[str, list[float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        for view in VIEWS.values():
            tested = run["networks"].get(view.word)
            if tested is not None:
                row = values.setdefault(run["method"], {})
                row.setdefault(view.name, []).append(100 * tested[view.choice][KEY])
    return {
        method: {
            view: (statistics.fmean(own), statistics.stdev(own) if len(own) > 1 else None)
            for view, own in row.items()
        }
        for method, row in values.items()
    }


def from_table(path: Path) -> Cells:
    """The means of a table that `adagc bench` wrote."""
    cells: Cells = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["metric"] == KEY and line["mean"] and line["label"] == line["method"]:
                spread = float(line["deviation"]) if line["deviation"] else None
                row = cells.setdefault(line["method"], {})
                row[f"{line['network']}-{line['epoch']}"] = (float(line["mean"]), spread)
    return cells


def summary(cells: Cells) -> tuple[int, dict[str, tuple[float, float, int]]]:
    """Number of methods; by view the mean, the pooled deviation and how often it is the best."""
    known = outlines()
    rows = {
        method: row
        for method, row in cells.items()
        if "truth" not in known[method].needs and known[method].family != "Proposed"
        if row.keys() >= VIEWS.keys()
    }
    found = {}
    for view in VIEWS:
        spreads = [row[view][1] for row in rows.values()]
        known_spreads = [spread for spread in spreads if spread is not None]
        found[view] = (
            statistics.fmean(row[view][0] for row in rows.values()),
            math.sqrt(statistics.fmean(spread**2 for spread in known_spreads)),
            sum(max(row, key=lambda name: row[name][0]) == view for row in rows.values()),
        )
    return len(rows), found


if __name__ == "__main__":
    print(f"| table | methods | {' | '.join(VIEWS)} |")
    print(f"|---|---|{'---|' * len(VIEWS)}")
    for path in sorted([*DATA.glob("aid-*.jsonl"), *DATA.glob("*.csv")]):
        cells = from_runs(path) if path.suffix == ".jsonl" and "choice" not in path.name else {}
        cells = cells or (from_table(path) if path.suffix == ".csv" else {})
        if not cells:
            continue
        count, found = summary(cells)
        shown = [f"{mean:.1f} ({spread:.2f}), {best}" for mean, spread, best in found.values()]
        print(f"| {path.stem} | {count} | {' | '.join(shown)} |")

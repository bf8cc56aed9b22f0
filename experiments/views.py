"""Which view of the runs is the most certain one: the reasons for `adagc.training.views.DEFAULT`.

Test mAP in the four views, from the published packs: the mean over methods, the deviation over
seeds pooled over methods, and for how many methods a view is the best of the four. Methods that
train with clean labels are left out, and so is the one that this project proposes: a view must not
be chosen because it flatters.

    python experiments/views.py
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from adagc.bench.packs import unpack
from adagc.bench.results import Results
from adagc.methods import outline
from adagc.training.views import VIEWS

DATA = Path(__file__).parents[1] / "docs" / "results" / "data"
Cells = dict[str, dict[str, list[float]]]  # row -> view -> mAP of every run, in per cent


def cells(results: Results) -> Cells:
    """The rows that count, with the mAP of their runs in every view."""
    found = {}
    for label in results.labels:
        method = outline(results.method(label))
        if "truth" in method.needs or method.family == "Proposed":
            continue
        row = {
            name: [
                100 * scores.mean_average_precision
                for run in results.of(label)
                if (scores := view.scores(run.networks)) is not None
            ]
            for name, view in VIEWS.items()
        }
        if all(row.values()):
            found[label] = row
    return found


def summary(rows: Cells) -> dict[str, tuple[float, float, int]]:
    """By view: the mean, the pooled deviation over seeds, and for how many rows it is the best."""
    means = {
        label: {view: statistics.fmean(values) for view, values in row.items()}
        for label, row in rows.items()
    }
    return {
        view: (
            statistics.fmean(row[view] for row in means.values()),
            math.sqrt(statistics.fmean(statistics.variance(row[view]) for row in rows.values())),
            sum(max(row, key=lambda name: row[name]) == view for row in means.values()),
        )
        for view in VIEWS
    }


def table() -> str:
    """Markdown: one line per pack with at least ten methods and two seeds."""
    lines = [f"| table | methods | {' | '.join(VIEWS)} |", f"|---|---|{'---|' * len(VIEWS)}"]
    for path in sorted(DATA.glob("*/pack.json")):
        scenario, results = unpack(path.parent)
        rows = cells(results)
        if len(rows) >= 10 and len({run.seed for run in results.finished}) > 1:
            shown = [
                f"{mean:.1f} ({dev:.2f}), {best}" for mean, dev, best in summary(rows).values()
            ]
            lines.append(f"| {scenario.title} | {len(rows)} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())

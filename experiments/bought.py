"""What reviewed images buy: docs/results/review.md, from the record that review.py makes.

Seeds 0 to 4 are those on which orders were compared; others played no part in that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from lines import RECORDS, Line, read
from words import one, plus, whole

from adagc.compare.distributions import t_quantile

RECORD = RECORDS / "review-aid.jsonl"
COMPARED = range(5)
MAP, MF1 = "mean_average_precision", "mean_f1"
ORDERS = ("informative", "random", "uncertain", "likely")


def seeds(confirmed: bool) -> list[int]:
    """The seeds of the record: those on which orders were compared, or the others."""
    return sorted(
        {line["seed"] for line in read(RECORD) if (line["seed"] in COMPARED) != confirmed}
    )


def value(seed: int, order: str, metric: str) -> float:
    """The score of a training of the record, in per cent; KeyError if it was not made."""
    for line in read(RECORD):
        if (line["seed"], line["order"]) == (seed, order):
            return 100 * float(line[metric])
    raise KeyError(f"{RECORD.name} has no {order} of seed {seed}")


def interval(gaps: Sequence[float]) -> str:
    """The mean of differences, one per seed, and its 95 % interval: "+3.7 ± 2.0"."""
    wide = t_quantile(0.05, len(gaps) - 1) * statistics.stdev(gaps) / len(gaps) ** 0.5
    return f"{plus(statistics.fmean(gaps))} ± {one(wide)}"


def gain(
    order: str, metric: str, over: str = "none", *, confirmed: bool, of: Sequence[int] = ()
) -> str:
    """What an order gains over another training of the same seeds."""
    found = of or seeds(confirmed)
    return interval([value(s, order, metric) - value(s, over, metric) for s in found])


def table(confirmed: bool) -> str:
    """The table of a set of seeds."""
    by_order: dict[str, list[Line]] = defaultdict(list)
    for line in read(RECORD):
        if (line["seed"] in COMPARED) != confirmed:
            by_order[line["order"]].append(line)
    lines = [
        "| order | seeds | questions | answered yes | mAP | gain in mAP | gain in mF1 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for order in ("none", *ORDERS):
        made = by_order[order]
        if not made:
            continue
        known = [line["seed"] for line in made]
        mean = one(statistics.fmean(value(s, order, MAP) for s in known))
        if order == "none":
            lines.append(f"| no review | {len(made)} | | | {mean} | | |")
            continue
        asked = statistics.fmean(line["questions"] for line in made)
        yes = statistics.fmean(line["yes"] for line in made) / asked
        gains = [gain(order, each, confirmed=confirmed, of=known) for each in (MAP, MF1)]
        cells = [len(made), f"{asked:,.0f}", f"{whole(100 * yes)} %", mean, *gains]
        lines.append(f"| {order} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def sentence() -> str:
    """What docs/review.md quotes."""
    mean, random = (gain(order, MAP, confirmed=True) for order in ("informative", "random"))
    return (
        f"{mean} mAP in the default order and {random} in random order (95 % intervals over"
        f" {len(seeds(True))} seeds that played no part in choosing it)"
    )

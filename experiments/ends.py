"""What docs/results/beyond.md says of networks that are trained end to end."""

from __future__ import annotations

import statistics

from beyond import MARKS, of, there, view_of
from records import Lines, Pack
from words import error, one

FOLDER = "beyond-end"
DATA = {"aid-random": "AID", "ucm-random": "UC Merced"}
BEFORE = {"aid-random": "aid-end-to-end"}  # runs of an earlier version: scores without histories
TOLD = ("EPR", "Dist-PU")  # the earlier version told them true frequencies
NETWORKS = ("teacher", "averaged", "network")  # of those the first that a run has


def known() -> list[str]:
    """The scenarios that were run."""
    return [name for name in DATA if there(FOLDER, name)]


def runs(name: str) -> Pack:
    """The runs of a scenario."""
    return of(name, FOLDER)


def _before(name: str) -> list[tuple[str, str, dict[str, list[float]]]]:
    """Methods of an earlier version, a mark, and their mAP by epoch, one value per seed."""
    if name not in BEFORE:
        return []
    recorded = Lines(BEFORE[name])
    found = []
    for title in dict.fromkeys(run["method"] for run in recorded.runs):
        network = next(one for one in NETWORKS if recorded.of(title, one, "last"))
        told = " ᵃ" if title in TOLD else ""
        values = {
            epoch: [
                100 * one["mean_average_precision"] for one in recorded.of(title, network, epoch)
            ]
            for epoch in ("last", "best")
        }
        found.append((title, told, values))
    return found


def table() -> str:
    """The mAP of averages after the last epoch and after the one that noisy validation chooses."""
    lines = [
        "| | | seeds | last epoch | best noisy epoch | mF1 (last) |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name in known():
        for title, mark, values in _before(name):
            cells = [one(statistics.fmean(values[epoch])) for epoch in ("last", "best")]
            head = (f"{DATA[name]}, before", title + mark, str(len(values["last"])))
            lines.append(f"| {' | '.join((*head, *cells, ''))} |")
        pack = runs(name)
        for label in (label for label in pack.results.labels if pack.results.of(label)):
            row = label + MARKS[pack.results.knows(label)]
            cells = [one(pack.mean(label, view=f"averaged-{epoch}")) for epoch in ("last", "best")]
            cells.append(one(pack.mean(label, "mF1", "averaged-last")))
            seeds = len(pack.results.of(label))
            lines.append(f"| {DATA[name]} | {row} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def complete(name: str) -> bool:
    """Whether Auto has been run."""
    return "Auto" in {run.label for run in runs(name).results.finished}


def gain(name: str, other: str = "WAN", row: str = "Auto") -> str:
    """What a row gains over a method at its best noisy epoch, with the error over common seeds."""
    own = runs(name).per_seed(row, view=view_of(row))
    if other in runs(name).results.labels:
        base = runs(name).per_seed(other, view=view_of(other))
    else:
        base = {
            run["seed"]: 100 * run["networks"]["averaged"]["best"]["mean_average_precision"]
            for run in Lines(BEFORE[name]).runs
            if run["method"] == other
        }
    return error([own[seed] - base[seed] for seed in sorted(own.keys() & base.keys())])

"""What thresholds are worth that are learnt without clean labels: docs/results/thresholds.md.

    ADAGC_FEATURES=runs/aid-arrays/maps-96 adagc bench aid-features --out runs/thresholds
    python experiments/thresholds.py run aid runs/thresholds/aid-features
    python experiments/thresholds.py table                                 (prints Markdown)

The same with ucm and ucm-features, and with demo and demo-random. Nothing is trained here: `run`
reads all finished runs in the folder of a scenario. Every rule sees what a run keeps of its
validation images, predictions and observed labels, and gives one threshold per class; clean labels
of the test images say how good the predictions at these thresholds are. One line per run in
docs/results/data/thresholds-<data>.jsonl; a run that has a line is not read again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.bench.jobs import DONE
from adagc.errors import AdagcError
from adagc.methods import titles
from adagc.metrics import score
from adagc.priors import thresholds
from adagc.priors.levels import presence_with_levels
from adagc.priors.thresholds import f1_cuts
from adagc.training import held_out
from adagc.training.runs import Run
from adagc.training.scoring import predictions_of, truth_of
from adagc.training.views import VIEWS

sys.path.insert(0, str(Path(__file__).parent))
from lines import RECORDS, Line, append, read

TITLES = {"aid": "AID", "ucm": "UC Merced", "demo": "demo"}
# Seeds with which rules were made; all others played no part in it.
DEVELOPMENT = {"aid": range(10), "ucm": range(10), "demo": range(100, 200)}
SHOWN = ("network-last", "averaged-last")  # of the four that are recorded
METRICS = ("mF1", "micro-F1", "OA")
JUDGED = METRICS[:2]  # accuracy is highest where rare classes are never predicted

Floats = NDArray[np.float64]
Cell = Mapping[str, Sequence[float]]  # rule -> values of METRICS in per cent


# -- rules -------------------------------------------------------------------------------------


def learnt(p: Floats, observed: NDArray[Any]) -> dict[str, Floats]:
    """(C,) thresholds of every rule, from validation images and their observed labels.

    The two before the last are the parts that pooled-f1 is made of: one threshold with the largest
    F1 to be expected of all classes together, and expected F1 with a level for every class.
    """
    presence = presence_with_levels(p, observed)
    every = f1_cuts(p.reshape(-1, 1), presence.reshape(-1, 1))
    return {
        "half": thresholds(p, observed, "half"),
        "shares": thresholds(p, observed, "shares"),
        "expected-f1": thresholds(p, observed, "expected-f1"),
        "one for all": np.full(p.shape[1], every[0]),
        "with levels": f1_cuts(p, presence),
        "pooled-f1": thresholds(p, observed, "pooled-f1"),
    }


RULES = ("half", "shares", "expected-f1", "one for all", "with levels", "pooled-f1")
DEFAULT = "pooled-f1"
ORACLE = "oracle"  # knows the clean labels of the very images it is judged on


def measured(truth: NDArray[np.bool_], p: Floats, limits: Floats) -> list[float]:
    """The METRICS of predictions at these thresholds, in per cent."""
    found = score(truth, p, limits, absent="skip")
    table = found.per_class
    hits = float((table.recall * table.support).sum())
    micro = 2 * hits / max(float((table.support + table.predicted).sum()), 1)
    return [round(100 * value, 3) for value in (found.mean_f1, micro, found.overall_accuracy)]


def compared(
    p: Floats, observed: NDArray[Any], tested: Floats, truth: NDArray[np.bool_]
) -> dict[str, list[float]]:
    """What each rule makes of the validation images is worth on the test images.

    Args:
        p: (V, C) predictions for the validation images.
        observed: (V, C) their observed labels.
        tested: (N, C) predictions for the test images.
        truth: (N, C) their clean labels.
    """
    limits = learnt(p, observed)
    limits[ORACLE] = f1_cuts(tested, truth.astype(np.float64))
    return {name: measured(truth, tested, one) for name, one in limits.items()}


# -- runs --------------------------------------------------------------------------------------


def run(data: str, folder: Path, out: Path) -> None:
    """Add a line for every finished run in the folder that has none yet."""
    path = out / f"thresholds-{data}.jsonl"
    known = {(line["method"], line["seed"]): line["run"] for line in read(path)}
    found = [done.parent for done in sorted(folder.glob(f"*/seed*/{DONE}"))]
    if not found:
        raise AdagcError(f"{folder} has no finished runs: make them with  adagc bench")
    for place in found:
        one = Run.open(place)
        key = one.made.method, int(one.settings["seed"])
        if known.get(key) == place.name:
            continue
        if key in known:
            raise AdagcError(
                f"{key[0]} with seed {key[1]} is recorded from {known[key]} and would be again from"
                f" {place}: delete one of the runs, or its line in {path}"
            )
        line = recorded(data, one)
        append(path, line)
        known[key] = place.name
        print(f"{key[0]}, seed {key[1]}", flush=True)


def recorded(data: str, one: Run) -> dict[str, Any]:
    """The line of a run."""
    truth, predictions = truth_of(one), predictions_of(one)
    scores = {}
    for name, view in VIEWS.items():
        network = view.of(one.history[-1].roles)
        if network is not None:
            held = held_out.of_network(one, network, view.choice)
            scores[name] = compared(
                held.probabilities.astype(np.float64),
                held.observed,
                predictions[f"{network}-{view.choice}"].astype(np.float64),
                truth,
            )
    made = one.read_json("environment.json")
    return {
        "data": data,
        "method": one.made.method,
        "seed": int(one.settings["seed"]),
        "run": one.folder.name,
        "images": {"validation": len(held.observed), "test": len(truth)},
        "scores": scores,
        "machine": {key: made[key] for key in ("processor", "git")}
        | {"packages": {"torch": made["packages"]["torch"]}},
    }


# -- reading -----------------------------------------------------------------------------------


def lines(*, development: bool) -> list[Line]:
    """The records of the seeds with which rules were made, or of all others."""
    return [
        line
        for data in TITLES
        for line in read(RECORDS / f"thresholds-{data}.jsonl")
        if (line["seed"] in DEVELOPMENT[data]) == development
    ]


def cells(records: Sequence[Line], data: str | None = None, **wanted: Any) -> Iterator[Cell]:
    """The scores in these records, of one data set, method, seed or view; else of those shown."""
    view = wanted.pop("view", None)
    views = SHOWN if view is None else (view,)
    for line in records:
        if data in (None, line["data"]) and wanted.items() <= line.items():
            yield from (one for name, one in line["scores"].items() if name in views)


def mean(found: Sequence[Cell], rule: str, metric: str = "mF1") -> float:
    """Mean score at the thresholds of a rule, in per cent."""
    return statistics.fmean(one[rule][METRICS.index(metric)] for one in found)


def closed(found: Sequence[Cell], rule: str, metric: str = "mF1") -> float:
    """Share of the distance from half to the best thresholds in hindsight, in per cent.

    The mean gain over the mean distance: where half is as good as the best, there is no share.
    """
    half = mean(found, "half", metric)
    return 100 * (mean(found, rule, metric) - half) / (mean(found, ORACLE, metric) - half)


def known(records: Sequence[Line]) -> list[str]:
    """The data sets in these records."""
    return [data for data in TITLES if any(line["data"] == data for line in records)]


def overall(records: Sequence[Line], rule: str, metric: str = "mF1") -> float:
    """Mean over data sets of the share that a rule closes, in per cent."""
    return statistics.fmean(
        closed(list(cells(records, data)), rule, metric) for data in known(records)
    )


def worth(records: Sequence[Line], rule: str) -> float:
    """By which rules are compared: the mean of the shares in mF1 and in micro-F1.

    mF1 counts rare classes as much as frequent ones, micro-F1 counts labels.
    """
    return statistics.fmean(overall(records, rule, metric) for metric in JUDGED)


def better(records: Sequence[Line], rule: str, other: str, metric: str = "mF1") -> float:
    """Share of methods, in per cent, for which a rule is better than another in the mean."""
    column = METRICS.index(metric)
    cases = [
        statistics.fmean(one[rule][column] - one[other][column] for one in found) > 0
        for data in known(records)
        for title in titles()
        if (found := list(cells(records, data, method=title)))
    ]
    return 100 * statistics.fmean(cases)


def verdict(records: Sequence[Line]) -> str:
    """Which rule is the default and why, in a sentence."""
    ranked = sorted(RULES[1:], key=lambda rule: -worth(records, rule))
    shares = {
        rule: " and ".join(f"{overall(records, rule, metric):.0f} %" for metric in JUDGED)
        for rule in ranked
    }
    others = ", ".join(f"{rule} {shares[rule]}" for rule in ranked if rule != DEFAULT)
    why = "the most of all rules" if ranked[0] == DEFAULT else f"less than {ranked[0]} here"
    return (
        f"`{DEFAULT}` is the default: of the distance from one half to the best thresholds in"
        f" hindsight it closes {shares[DEFAULT]} in {' and '.join(JUDGED)}, {why} ({others})."
    )


def table(records: Sequence[Line], metric: str = "mF1") -> str:
    """Mean over methods and seeds at every rule, with the share of the distance in brackets."""
    rules = [*RULES, ORACLE]
    rows = [f"| data | network | {' | '.join(rules)} |", f"|---|---|{'---:|' * len(rules)}"]
    for data in known(records):
        for name in SHOWN:
            found = list(cells(records, data, view=name))
            shown = [f"{mean(found, rule, metric):.1f}" for rule in rules]
            if metric in JUDGED:
                for number, rule in enumerate(RULES[1:], 1):
                    shown[number] += f" ({closed(found, rule, metric):.0f} %)"
            rows.append(f"| {TITLES[data]} | {VIEWS[name].network} | {' | '.join(shown)} |")
    return "\n".join(rows)


def by_method(records: Sequence[Line], view: str = "averaged-last") -> str:
    """Mean mF1 over seeds of every method: half, expected-f1, the default and the best."""
    shown = ("half", "expected-f1", DEFAULT, ORACLE)
    sets = known(records)
    rows = [
        f"| method | {' | '.join(TITLES[data] for data in sets)} |",
        f"|---|{'---|' * len(sets)}",
    ]
    for title in titles():
        parts = [list(cells(records, data, method=title, view=view)) for data in sets]
        if any(parts):
            texts = [
                " / ".join(f"{mean(found, rule):.1f}" for rule in shown) if found else ""
                for found in parts
            ]
            rows.append(f"| {title} | {' | '.join(texts)} |")
    return "\n".join(rows)


def seeds(records: Sequence[Line]) -> str:
    """Data sets, seeds and numbers of runs, such as "AID, seeds 10 to 14 (140 runs)"."""
    texts = []
    for data in known(records):
        own = [line["seed"] for line in records if line["data"] == data]
        few = f"seeds {min(own)} to {max(own)}" if min(own) < max(own) else f"seed {own[0]}"
        texts.append(f"{TITLES[data]}, {few} ({len(own)} runs)")
    return "; ".join(texts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    told = commands.add_parser("run")
    told.add_argument("data", choices=list(TITLES))
    told.add_argument("folder", type=Path, help="Folder of a scenario's runs.")
    told.add_argument("--out", type=Path, default=RECORDS)
    commands.add_parser("table")
    asked = parser.parse_args()
    if asked.command == "run":
        try:
            run(asked.data, asked.folder, asked.out)
        except AdagcError as error:
            sys.exit(f"error: {error}")
    else:
        for development in (True, False):
            if found := lines(development=development):
                print(f"{seeds(found)}\n\n{table(found)}\n\n{by_method(found)}\n")

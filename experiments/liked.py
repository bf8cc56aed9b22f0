"""What becomes of methods when annotators like some classes better: docs/results/beyond.md.

    ADAGC_FEATURES=runs/aid-arrays/maps-96 python experiments/liked.py aid-features-tuned

The label of an image is drawn among the classes that are there with P(c) in proportion to w_c, and
log w_c is normal with deviation 1: one class in forty is named more than seven times, and one less
than a seventh of the times that chance would. Weights and labels are drawn anew for every seed.
One row is told the weights (`--selection`), as `adagc annotate --report` measures them. Every run
is a line of docs/results/data/beyond-liked.jsonl; lines that are there are not made again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
from lines import RECORDS, Line, append, read
from numpy.typing import NDArray
from records import HEADINGS
from words import error, one

from adagc.bench.scenarios import load
from adagc.datasets.collection import Collection
from adagc.labels import LabelTable
from adagc.labels.selection import Selection, write_selection
from adagc.methods import find
from adagc.metrics import METRICS
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve
from adagc.training.views import VIEWS

RECORD = RECORDS / "beyond-liked.jsonl"
SPREAD = 1.0  # standard deviation of log w
TOLD = ", told how classes are liked"
ROWS = ("GT w/ BCE", "AN", "WAN", "LL-R", "Dist-PU", "AdaGC", "Random label", "Auto", "Auto" + TOLD)
DATA = {"aid-features-tuned": "AID", "ucm-features-tuned": "UC Merced"}
BEST, LAST = "averaged-best", "averaged-last"


def drawn(collection: Collection, seed: int) -> tuple[LabelTable, NDArray[np.float64]]:
    """One label of each training and validation image, and the weights of the classes."""
    generator = np.random.default_rng((seed, 7))  # other numbers than those of the splits
    weights = np.exp(SPREAD * generator.normal(size=len(collection.classes)))
    rows = np.concatenate([collection.splits[name] for name in ("train", "val")])
    assert collection.truth is not None
    rows = rows[collection.truth[rows].any(axis=1)]
    shares = (weights * collection.truth[rows]).cumsum(axis=1)
    chosen = (shares > generator.random((len(rows), 1)) * shares[:, -1:]).argmax(axis=1)
    values = np.zeros((len(rows), len(weights)), dtype=np.int8)
    values[np.arange(len(rows)), chosen] = 1
    names = tuple(collection.images.names[row] for row in rows)
    return LabelTable(names, collection.classes, values, "single"), weights


def run(name: str, seeds: Sequence[int] | None, record: Path = RECORD) -> None:
    """Train every row on every seed of a scenario that the record does not have yet."""
    scenario = load(name)
    collection = open_configured(scenario.config(scenario.seeds[0]))
    known = {(line["scenario"], line["row"], line["seed"]) for line in read(record)}
    for seed in seeds or scenario.seeds:
        labels, weights = drawn(collection, seed)
        for row in (row for row in ROWS if (name, row, seed) not in known):
            title = row.removesuffix(TOLD)
            config = replace(scenario.config(seed), scheme=None, priors="estimated")
            if title == "GT w/ BCE":  # it reads the truth, whatever the labels
                config = replace(config, scheme="random")
            with tempfile.TemporaryDirectory() as folder:
                if row.endswith(TOLD):
                    path = Path(folder) / "selection.json"
                    rates = dict(zip(collection.classes, weights.tolist(), strict=True))
                    write_selection(Selection(rates, len(labels)), path)
                    config = replace(config, selection=str(path))
                done = train(
                    resolve(config, collection.images),
                    find(title)(**scenario.told(title)),
                    collection=collection,
                    labels=None if config.scheme else labels,
                )
            assert done.scores is not None
            scores = {
                view: found.summary()
                for view in (BEST, LAST)
                if (found := VIEWS[view].scores(done.scores.networks)) is not None
            }
            line = {"scenario": name, "row": row, "seed": seed, "scores": scores}
            line |= {"machine": environment()}
            append(record, line)
            print(name, row, seed, _value(line, "mAP"), flush=True)


def _value(line: Line, metric: str) -> float:
    """What is shown of a run, as in the tables of the page: Auto chooses its epoch itself."""
    view = LAST if line["row"].startswith("Auto") else BEST
    one_metric = METRICS[HEADINGS[metric]]
    return float(one_metric.scale * line["scores"][view][one_metric.key])


def odds() -> str:
    """How many times as often the better liked of two classes is named, in the median."""
    # The difference of two logarithms is normal with √2 times their deviation.
    return one(math.exp(SPREAD * math.sqrt(2) * NormalDist().inv_cdf(0.75)))


def table() -> str:
    """Mean mAP and mF1 of every row, and what it gains over WAN on the same seeds."""
    found = read(RECORD)
    names = [name for name in DATA if any(line["scenario"] == name for line in found)]
    heads = [f"{DATA[name]} | over WAN" for name in names]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|---:|' * len(names)}"]
    for row in ROWS:
        cells = []
        for name in names:
            by = {(line["row"], line["seed"]): line for line in found if line["scenario"] == name}
            # A record that is still being made has some seeds of WAN only, or of others only.
            seeds = sorted(seed for other, seed in by if other == row and ("WAN", seed) in by)
            if not seeds:
                cells += ["", ""]
                continue
            both = [
                one(statistics.fmean(_value(by[row, seed], metric) for seed in seeds))
                for metric in ("mAP", "mF1")
            ]
            gaps = [_value(by[row, seed], "mAP") - _value(by["WAN", seed], "mAP") for seed in seeds]
            cells += [" / ".join(both), "" if row == "WAN" else error(gaps)]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="+", choices=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+")
    asked = parser.parse_args()
    for each in asked.scenarios:
        run(each, asked.seeds)

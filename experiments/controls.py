"""What the last layer alone gives: WAN and GT with the class maps that likelihood methods have.

    python experiments/controls.py demo-random --seeds 0 1 2 3 4
    ADAGC_FEATURES=runs/mosaic-arrays/maps-150 python experiments/controls.py mosaic-features-random

Methods that explain labels position by position also have another last layer than the others. Here
WAN, and training with all labels, have one that takes a soft maximum over the positions of several
stages, and all else is as in `adagc bench` of the scenario. Every run is a line of
docs/results/data/beyond-controls.jsonl; lines that are there are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from lines import RECORDS, append, read

from adagc.bench.scenarios import load
from adagc.methods import find
from adagc.methods.base import Method
from adagc.models.spec import HeadSpec
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve
from adagc.training.views import VIEWS

RECORD = RECORDS / "beyond-controls.jsonl"
SUFFIX = ", any position"
CONTROLS = {"WAN": "WAN", "GT": "GT w/ BCE"}  # the word of the command line -> the method


def anywhere(title: str) -> type[Method]:
    """The method on class maps: a class is present if some position shows it."""
    plain = find(title)

    class Anywhere(plain):  # type: ignore[valid-type,misc]
        needs: ClassVar[frozenset[str]] = plain.needs | {"feature_map"}

        def head(self) -> HeadSpec:
            return HeadSpec("any-position")

    Anywhere.title = title + SUFFIX
    return Anywhere


def run(name: str, title: str, seeds: Sequence[int] | None, record: Path = RECORD) -> None:
    """Train a control on every seed of a scenario that the record does not have yet."""
    scenario, kind = load(name), anywhere(title)
    known = {(line["scenario"], line["method"], line["seed"]) for line in read(record)}
    collection = None
    for seed in seeds or scenario.seeds:
        if (name, kind.title, seed) in known:
            continue
        config = scenario.config(seed)
        collection = collection or open_configured(config)
        method = kind(**scenario.told(title))
        done = train(resolve(config, collection.images), method, collection=collection)
        assert done.scores is not None
        scores = {
            view: found.summary()
            for view, one in VIEWS.items()
            if (found := one.scores(done.scores.networks)) is not None
        }
        line = {"scenario": name, "method": method.title, "seed": seed, "scores": scores}
        append(record, {**line, "machine": environment()})
        shown = {
            view: round(100 * one["mean_average_precision"], 1) for view, one in scores.items()
        }
        print(name, kind.title, seed, shown, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", choices=list(CONTROLS), default=list(CONTROLS))
    chosen = parser.parse_args()
    for one in chosen.scenarios:
        for word in chosen.methods:
            run(one, CONTROLS[word], chosen.seeds)

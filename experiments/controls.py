"""What the last layer alone gives: WAN with the class maps that likelihood methods have.

    python experiments/controls.py demo-random --seeds 0 1 2 3 4
    ADAGC_FEATURES=runs/mosaic-arrays/maps-150 python experiments/controls.py mosaic-features-random

Methods that explain labels position by position also have another last layer than WAN. Here WAN has
one that takes a soft maximum over the positions of several stages, and all else is as in
`adagc bench` of the scenario. Every run is a line of docs/results/data/beyond-controls.jsonl; lines
that are there are not made again.
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
WAN = find("WAN")


class AnywhereWAN(WAN):  # type: ignore[valid-type,misc]
    """WAN on class maps: a class is present if some position shows it."""

    title: ClassVar[str] = "WAN, any position"
    needs: ClassVar[frozenset[str]] = frozenset({"feature_map"})

    def head(self) -> HeadSpec:
        """A soft maximum over positions."""
        return HeadSpec("any-position")


def run(name: str, seeds: Sequence[int] | None, record: Path = RECORD) -> None:
    """Train the control on every seed of a scenario that the record does not have yet."""
    scenario = load(name)
    known = {(line["scenario"], line["seed"]) for line in read(record)}
    collection = None
    for seed in seeds or scenario.seeds:
        if (name, seed) in known:
            continue
        config = scenario.config(seed)
        collection = collection or open_configured(config)
        method: Method = AnywhereWAN(**scenario.told("WAN"))
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
        print(name, seed, shown, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+")
    chosen = parser.parse_args()
    for one in chosen.scenarios:
        run(one, chosen.seeds)

"""`adagc demo --reben`: the whole path of a BigEarthNet user, on a copy that is made up here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from adagc.datasets.bigearthnet import DATASET
from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.demo import make_room, scores_of, train_methods
from adagc.labels import write_labels
from adagc.labels.statistics import FlipRates, flip_rates
from adagc.methods import DEFAULT as DEFAULT_METHOD
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.observe import simulate
from adagc.training.runs import Run
from adagc.training.views import DEFAULT

PATCHES = 400  # half of them train: enough to see the path, far too few for good scores
SETTINGS: dict[str, Any] = {
    "data": DATASET.name,
    "backbone": "test_resnet",
    "weights": "none",
    "batch_size": 32,
    "learning_rate": 2e-3,
    "epochs": 6,
    "average": 0.9,  # of about one epoch
    "thresholds": "estimated",
    "priors": "published",
    "absent": "skip",  # some of the 19 classes are too rare for so few patches
}
METHODS = ("AN", DEFAULT_METHOD)


def run_demo(out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Generate a small copy, prepare it, simulate dominant labels, train two methods, and report.

    Args:
        out: Folder for everything; the folder of an earlier demo is replaced.
        seed: Seed of the patches and of the initial weights.

    Returns:
        The steps with their seconds, the scores of the methods, the flip rates of the training
        patches, all this in a sentence, another one on what the default method has chosen, the path
        of the report and the duration in seconds.
    """
    from adagc.report import write_report
    from adagc.report.record import Record

    began = time.perf_counter()
    make_room(out)
    steps: dict[str, float] = {}
    since = began

    def done(step: str) -> None:
        nonlocal since
        now = time.perf_counter()
        steps[step] = round(now - since, 1)
        since = now

    generate(out / "BigEarthNet", PATCHES, seed=seed)
    done("generate")
    prepare(out / "BigEarthNet", out / "store", workers=os.cpu_count() or 1)
    done("prepare")
    collection = bigearthnet_collection(out / "store")
    table = simulate(collection, "dominant", seed, splits=tuple(collection.splits))
    write_labels(table, out / "dominant.csv")
    done("simulate")
    runs: dict[str, Run] = {}
    config = RunConfig(
        **SETTINGS, root=str(out / "store"), labels=str(out / "dominant.csv"), seed=seed
    )
    methods = {title: find(title)() for title in METHODS}
    for title, run in train_methods(methods, config, out, collection):
        runs[title] = run
        done(f"train {title}")
    main = runs[DEFAULT_METHOD]
    others = [run for title, run in runs.items() if title != DEFAULT_METHOD]
    report = write_report(main, against=others, out=out / "report.html", collection=collection)
    done("report")
    rows = collection.splits["train"]
    place = {name: row for row, name in enumerate(table.images)}
    kept = [place[collection.images.names[row]] for row in rows.tolist()]
    assert collection.truth is not None
    rates: FlipRates = flip_rates(collection.truth[rows], table.values[kept])
    spent = ", ".join(f"{step} {seconds:g} s" for step, seconds in steps.items())
    return {
        "steps": steps,
        "scores": {title: scores_of(run, DEFAULT) for title, run in runs.items()},
        "flips": rates.to_dict(),
        "sentence": (
            f"{len(collection.images)} made-up patches, {rates.micro:.0%} of their labels dropped:"
            f" scores say nothing about real ones. {spent[:1].upper()}{spent[1:]}."
        ),
        "story": Record.of(main).story.sentence,
        "patches": len(collection.images),
        "store": str(out / "store"),
        "report": str(report),
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
    }

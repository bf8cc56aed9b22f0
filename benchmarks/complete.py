"""How many missing labels are recovered, how right they are, and what that costs.

For finished runs of a bench (one random label per image) the labels of the training images are
completed, with probabilities of networks that were trained on them (in-sample) and of networks that
were not (out-of-fold). No clean label is used to
complete; they are used here to judge. cleanlab gets the same probabilities and observed labels.

    adagc bench aid-features --methods Auto --seeds 40 41 42 43 44 --out runs/bench
    python benchmarks/complete.py runs/bench/aid-features --methods auto --record aid
    python benchmarks/complete.py      (only the CPU time, on made-up features; limit 1.0)

With --record every completion is a line of docs/results/data/complete-<name>.jsonl, from which
`make pages` writes docs/results/complete.md; completions that have a line are not made again.

The columns of the table: precision at a recall of one half of the missing labels, and recall at a
precision of 0.8, if labels are taken in the order of the estimated presence and of the probability
alone; what `adagc complete` decides by itself; what cleanlab calls missing labels, and the share of
the observed labels, all of them right, that it calls wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from adagc.completion import Completed, complete
from adagc.completion.completed import IN_SAMPLE, OUT_OF_FOLD
from adagc.completion.quality import judge
from adagc.completion.subjects import open_subjects
from adagc.datasets import collect
from adagc.datasets.collection import Collection
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable
from adagc.methods import DEFAULT, find
from adagc.training.config import RunConfig
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import config_of, open_configured
from adagc.training.runs import Run
from adagc.training.scoring import score_networks

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from completed import TITLES, path_of
from lines import append, read

METHODS = ("auto", "an", "wan", "adagc")
SEEDS = range(40, 45)  # no run with them played a part in making the calibration
ROUNDS = 5
MOST = 1.0  # times the CPU time of an evaluation
PRECISION, RECALL = 0.8, 0.5  # what should be reached by the default method
COLUMNS = (
    ("P@R50", "precision_at_recall"),
    ("R@P80", "recall_at_precision"),
    ("P@R50 plain", "plain_precision_at_recall"),
    ("R@P80 plain", "plain_recall_at_precision"),
    ("precision", "precision"),
    ("recall", "recall"),
    ("absent right", "absent_right"),
    ("unsure", "unsure"),
    ("cleanlab precision", "cleanlab_precision"),
    ("cleanlab recall", "cleanlab_recall"),
    ("cleanlab accuses", "cleanlab_accuses"),
)


def measured(made: Completed, truth: np.ndarray) -> dict[str, Any]:
    """All numbers of one completed run."""
    assert made.quality is not None
    plain = judge(made.probability.astype(np.float64), made.decision, made.observed, truth)
    unknown = made.observed == 0
    found = {
        name: getattr(made.quality, name)
        for name in (
            *("precision_at_recall", "recall_at_precision", "precision", "recall"),
            "absent_right",
        )
    }
    return {
        **found,
        "unsure": made.quality.unsure / int(unknown.sum()),
        "plain_precision_at_recall": plain.precision_at_recall,
        "plain_recall_at_precision": plain.recall_at_precision,
        **cleaned(made, truth),
    }


def cleaned(made: Completed, truth: np.ndarray) -> dict[str, float]:
    """What cleanlab finds with the same probabilities, where unobserved means absent."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    given = [np.flatnonzero(row > 0).tolist() for row in made.observed]
    scores = made.probability.astype(np.float64)
    issues = np.asarray(find_multilabel_issues_per_class(given, scores, n_jobs=1), dtype=bool)
    unknown, seen = made.observed == 0, made.observed > 0
    taken = issues & unknown
    right = truth & taken
    return {
        "cleanlab_precision": float(right.sum() / max(int(taken.sum()), 1)),
        "cleanlab_recall": float(right.sum() / (truth & unknown).sum()),
        "cleanlab_accuses": float((issues & seen).sum() / seen.sum()),
    }


def cost(run: Run, collection: Collection) -> list[float]:
    """CPU time to complete the training images, over that of an evaluation of them, per round.

    Both open the run and compare the images with those it was trained on, and neither writes.
    """
    rows = collection.splits["train"]
    ratios = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        complete(run, part="train", collection=collection)
        middle = time.process_time()
        score_networks(run, collection, rows, "train")
        ratios.append((middle - began) / (time.process_time() - middle))
    return ratios[1:]  # the first round imports


def made_up(folder: Path) -> tuple[Run, Collection]:
    """A run on made-up features, about as many as AID has."""
    rng = np.random.default_rng(0)
    truth = rng.random((2400, 17)) < 0.3
    truth[~truth.any(axis=1), 0] = True
    shown = truth @ rng.normal(size=(17, 1280)) + rng.normal(size=(2400, 1280))
    np.save(folder / "values.npy", shown.astype(np.float32))
    images = ArrayScenes(shown.astype(np.float32))
    names = tuple(f"class {c}" for c in range(17))
    table = LabelTable(images.names, names, truth.astype(np.int8))
    collection = collect(images, truth=table, val_share=0.25, test_share=0.1)
    config = RunConfig(
        data="array", root=str(folder / "values.npy"), scheme="random", epochs=2,
        backbone="mlp", dropout=0.5, accelerator="cpu", oracle=False,
    )  # fmt: skip
    return train(config, find(DEFAULT)(), collection=collection), collection


def say(name: str, ratios: list[float]) -> None:
    """One line with the median ratio and its range."""
    print(
        f"adagc complete takes {np.median(ratios):.2f} times the CPU time of an evaluation of the"
        f" same images ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds): {name}"
    )


def main() -> None:
    """Complete the labels of all runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", help="without it: only what it costs")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--folds", type=int, default=5, help="0: in-sample only")
    parser.add_argument("--record", choices=TITLES, help="keep all lines, as those of this data")
    options = parser.parse_args()
    if options.runs is None:
        with tempfile.TemporaryDirectory() as folder:
            ratios_made_up = cost(*made_up(Path(folder)))
        say("made-up features", ratios_made_up)
        sys.exit(int(np.median(ratios_made_up) > MOST))
    collection: Collection | None = None
    known = read(path_of(options.record)) if options.record else []
    records: list[dict[str, Any]] = [
        dict(line)
        for line in known
        if line["method"] in options.methods and line["seed"] in options.seeds
    ]
    done = {(line["method"], line["seed"], line["sample"]) for line in known}
    ratios = []
    for method in options.methods:
        for seed in options.seeds:
            for folder in sorted((options.runs / method).glob(f"seed{seed}-*")):
                if not (folder / "model.json").exists():
                    continue
                run = Run.open(folder)
                if collection is None:
                    collection = open_configured(config_of(run))
                if seed == options.seeds[0]:
                    ratios.append((method, cost(run, collection)))
                for sample, folds in ((IN_SAMPLE, None), (OUT_OF_FOLD, options.folds or None)):
                    unwanted = sample == OUT_OF_FOLD and folds is None
                    if unwanted or (method, seed, sample) in done:
                        continue
                    made = complete(run, part="train", folds=folds, collection=collection)
                    subjects = open_subjects(
                        run, run.model().spec, ("train",), collection=collection
                    )
                    clean = subjects.truth(made.classes)
                    assert clean is not None
                    assert set(made.samples) == {sample}
                    numbers = measured(made, clean[0])
                    records.append({"method": method, "seed": seed, "sample": sample, **numbers})
                    print(json.dumps(records[-1]), file=sys.stderr, flush=True)
                    if options.record:
                        append(path_of(options.record), {**records[-1], "machine": environment()})
    print(table(records))
    for method, ratio in ratios:
        say(method, ratio)
    sys.exit(0 if reached(records) else 1)


def table(records: list[dict[str, Any]]) -> str:
    """Means and standard deviations over seeds, as Markdown."""
    head = ["method", "probabilities", *(name for name, _ in COLUMNS)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for key in dict.fromkeys((one["method"], one["sample"]) for one in records):
        mine = [one for one in records if (one["method"], one["sample"]) == key]
        cells = []
        for _, name in COLUMNS:
            values = [np.nan if one[name] is None else 100 * one[name] for one in mine]
            deviation = np.nanstd(values, ddof=1) if len(values) > 1 else 0.0
            cells.append(f"{np.nanmean(values):.1f} ± {deviation:.1f}")
        lines.append(f"| {' | '.join([*key, *cells])} |")
    return "\n".join(lines)


def reached(records: list[dict[str, Any]]) -> bool:
    """Whether the default method recovers enough, surely enough, by its own decision."""
    mine = [one for one in records if one["method"] == METHODS[0]]
    means = {name: np.mean([one[name] or 0.0 for one in mine]) for name in ("precision", "recall")}
    print(
        f"Auto by its own decision: precision {means['precision']:.3f} (goal {PRECISION}), recall"
        f" {means['recall']:.3f} (goal {RECALL}), mean of {len(mine)} completions"
    )
    return bool(means["precision"] >= PRECISION and means["recall"] >= RECALL)


if __name__ == "__main__":
    main()

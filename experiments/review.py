"""What reviewing images buys: train, review some images, train again, and test.

The reviewer's answers are the clean labels of training images; nothing else sees these, and no
clean label of a validation image is used anywhere. Each line of the record is one training: seed,
order and number of reviewed images, questions and how many were answered with yes, and clean
scores of the test images. Lines that exist are not made again.

    ADAGC_DATA=/path/to/data ADAGC_FEATURES=runs/aid-arrays/maps-96 \
        python experiments/review.py run --seeds 0 1 2 3 4 --out review.jsonl
    python experiments/review.py table --out review.jsonl               (prints Markdown)

What is published of it: bought.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adagc.bench.scenarios import load
from adagc.completion.work import complete
from adagc.labels import LabelTable
from adagc.methods import find
from adagc.review.answers import Answer, reviewed
from adagc.review.order import LEAST, MOST, ORDERS, ranked, suggested
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.observe import simulate
from adagc.training.runs import Run

sys.path.insert(0, str(Path(__file__).parent))
from lines import append, read

METRICS = ("mean_average_precision", "mean_f1", "overall_accuracy")


def main() -> None:
    """Train what the record does not have, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--scenario", default="aid-features")
    parser.add_argument("--method", default="Auto")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--count", type=int, nargs="+", default=[200])
    parser.add_argument("--least", type=float, default=LEAST)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--epochs", type=int, help="those of the scenario by default")
    parser.add_argument("--batch", type=int, help="batch size; that of the scenario by default")
    parser.add_argument("--rate", type=float, help="learning rate; likewise")
    parser.add_argument("--out", type=Path, default=Path("review.jsonl"))
    options = parser.parse_args()
    if options.what == "run":
        for seed in options.seeds:
            one_seed(seed, options)
    table(options)


def one_seed(seed: int, options: argparse.Namespace) -> None:
    """All trainings of one seed that the record does not have."""
    scenario = load(options.scenario)
    config = replace(scenario.config(seed), scheme=None, thresholds="pooled-f1", oracle=False)
    config = replace(
        config,
        epochs=options.epochs or config.epochs,
        batch_size=options.batch or config.batch_size,
        learning_rate=options.rate or config.learning_rate,
    )
    method = find(options.method)
    key = {"scenario": options.scenario, "method": method.title, "seed": seed}
    key |= {"epochs": config.epochs, "batch": config.batch_size}
    asked = {"least": options.least, "most": options.most}
    wanted = [
        {**key, **asked, "order": order, "count": count}
        for order in options.orders
        for count in options.count
    ]
    known = read(options.out)
    missing = [one for one in wanted if not _has(known, one)]
    first = {**key, "order": "none", "count": 0}
    if not missing and _has(known, first):
        return
    told = scenario.told(method.title)
    collection = open_configured(config)
    labels = simulate(collection, "random", config.label_seed)
    assert collection.truth is not None
    place = {name: row for row, name in enumerate(collection.images.names)}

    def trained(table: LabelTable, line: dict[str, Any]) -> Run:
        began = time.process_time()
        run = train(config, method(**told), collection=collection, labels=table)
        line["seconds"] = round(time.process_time() - began, 1)
        scores = run.scores
        assert scores is not None
        tested = next(n for n in scores.networks.values() if n.role.value == "deployed")
        found = tested.epochs["last"].scores
        line |= {k: round(float(getattr(found, k)), 5) for k in METRICS}
        line |= {
            k: v for k, v in run.history[-1].status.items() if isinstance(v, int | float | str)
        }
        if not _has(known, line):
            append(options.out, line)
        print(line, flush=True)
        return run

    run = trained(labels, dict(first))
    made = complete(run, part="train", collection=collection)
    presence = made.presence if made.presence is not None else made.probability.astype(float)
    rows = np.array([place[name] for name in made.images])
    truth = collection.truth[rows]
    questions = suggested(presence, made.observed, least=options.least, most=options.most)
    for one in missing:
        chosen = ranked(
            presence, questions, made.observed, order=one["order"], count=one["count"], seed=seed
        )
        answers = [
            Answer(made.images[i], made.classes[c], 1 if truth[i, c] else -1)
            for i in chosen.tolist()
            for c in np.flatnonzero(questions[i]).tolist()
        ]
        yes = sum(answer.value > 0 for answer in answers)
        counts = {"images": len(chosen), "questions": len(answers), "yes": yes}
        trained(reviewed(labels, answers), {**one, **counts})


def _has(known: list[Any], one: dict[str, Any]) -> bool:
    keys = [
        k
        for k in (
            "scenario",
            "method",
            "seed",
            "epochs",
            "batch",
            "order",
            "count",
            "least",
            "most",
        )
        if k in one
    ]
    return any(all(line.get(k) == one[k] for k in keys) for line in known)


def table(options: argparse.Namespace) -> None:
    """Gains over the same seed without review: mean, deviation and how many seeds gain."""
    groups: dict[Any, dict[int, Any]] = defaultdict(dict)
    for line in read(options.out):
        name = (line["order"], line["count"], line.get("least"), line.get("most"))
        groups[line["scenario"], line["method"], line["epochs"], *name][line["seed"]] = line
    heads = [
        "scenario",
        "method",
        "epochs",
        "order",
        "images",
        "least",
        "most",
        "questions",
        "yes",
        "mAP",
        "mF1",
        "seeds",
    ]
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for key, lines in sorted(groups.items(), key=str):
        base = groups.get((*key[:3], "none", 0, None, None), {})
        seeds = [s for s in sorted(lines) if s in base and s in options.seeds]
        if not seeds:
            continue
        cells = []
        for metric in ("mean_average_precision", "mean_f1"):
            now = [100 * lines[s][metric] for s in seeds]
            gain = [100 * (lines[s][metric] - base[s][metric]) for s in seeds]
            spread = statistics.stdev(gain) if len(gain) > 1 else 0.0
            gained = f"{statistics.mean(gain):+.2f} ± {spread:.2f}"
            cells.append(f"{statistics.mean(now):.2f} ({gained})")
        asked = statistics.mean(lines[s].get("questions", 0) for s in seeds)
        yes = statistics.mean(lines[s].get("yes", 0) for s in seeds) / max(asked, 1)
        row = (*key, f"{asked:.0f}", f"{yes:.0%}", *cells, len(seeds))
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()

"""The comparisons behind docs/results/fidelity.md: methods as released and as we run them.

    export ADAGC_FEATURES=$(python experiments/aid.py arrays --out runs/aid-arrays)
    python experiments/fidelity.py run --out runs/fidelity    (half an hour on one core)
    python experiments/fidelity.py table                      (prints Markdown)

Everything but the option in question is as in `make bench-features`. Finished runs are not run
again; all of them are recorded in docs/results/data/fidelity.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adagc.atomic import write_text
from adagc.bench.jobs import Job, make_job
from adagc.bench.scenarios import load
from adagc.bench.work import perform
from adagc.paper.theory.measure import measure

RECORD = Path(__file__).parents[1] / "docs" / "results" / "data" / "fidelity.jsonl"
FEATURES = "aid-features-tuned"
_UNTUNED = {"weight": 3.0, "momentum": 0.9}  # defaults of ELR
# Method, name of the variant, and the options in which it differs from the scenario.
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("RCML", "median bandwidth", {"sigma": None}),
    ("RCML", "bandwidth 10,000", {"sigma": 1e4}),
    ("Dist-PU", "weighting of the paper", {"form": "paper"}),
    ("Dist-PU", "weighting of the code", {"form": "code"}),
    ("ELR", "binary, start 0.5", {"form": "binary", "start": 0.5}),
    ("ELR", "binary, start 0", {"form": "binary", "start": 0.0}),
    ("ELR", "binary, start 0.5, untuned", {"form": "binary", "start": 0.5, **_UNTUNED}),
    ("ELR", "binary, start 0, untuned", {"form": "binary", "start": 0.0, **_UNTUNED}),
    ("ELR", "product, start 0", {}),
)
# Whole runs of AN, for Theorem 1: scenario and number of seeds.
THEOREM = {FEATURES: 5, "demo-random": 3, "demo-dominant": 3}


def jobs(out: Path) -> Iterator[tuple[str, Job]]:
    """Every run, with the name of its variant; all variants of the first seed come first."""
    features = load(FEATURES)
    for seed in range(5):
        for title, variant, changed in VARIANTS:
            options = {**features.told(title), **changed}
            label = f"{title}, {variant}"
            yield variant, make_job(features, title, seed, out, options=options, label=label)
    for name, count in THEOREM.items():
        for seed in range(count):
            yield "whole run", make_job(load(name), "AN", seed, out)


def run(out: Path) -> None:
    """Train what is missing, and write the record."""
    planned = list(jobs(out))
    for number, (_, job) in enumerate(planned, start=1):
        perform(job)
        print(f"{number} of {len(planned)}: {job.label}, seed {job.seed}", flush=True)
    lines = [json.dumps(_record(variant, job)) for variant, job in planned]
    write_text(RECORD, "\n".join(lines) + "\n")


def _record(variant: str, job: Job) -> dict[str, Any]:
    scores, environment = job.run.scores, job.run.read_json("environment.json")
    assert scores is not None
    kept = ("adagc", "git", "packages", "processor", "threads")
    return {
        "scenario": job.scenario,
        "method": job.method,
        "variant": variant,
        "seed": job.seed,
        "options": dict(job.options),
        "settings": {
            name: job.settings[name]
            for name in ("epochs", "batch_size", "learning_rate", "dropout", "average", "scheme")
        },
        "environment": {name: environment[name] for name in kept},
        "networks": {
            name: {
                which: {"epoch": at.epoch, **at.scores.summary()}
                for which, at in network.epochs.items()
            }
            for name, network in scores.networks.items()
        },
        **({"peaks": _peaks(job)} if job.method == "AN" else {}),
    }


def _peaks(job: Job) -> dict[str, Any]:
    """Where noisy and clean validation mAP peak over the whole run (Theorem 1)."""
    return {name: measure(job.run, name).peaks.to_dict() for name in ("network", "averaged")}


def recorded() -> list[dict[str, Any]]:
    """All recorded runs."""
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def table() -> None:
    """Markdown: mean and unbiased deviation over seeds of every variant, then the peaks of AN."""
    lines = recorded()
    print("| method | variant | mAP | mF1 | averaged: mAP | mF1 |")
    print("|---|---|---|---|---|---|")
    for title, variant, _ in VARIANTS:
        runs = [line for line in lines if (line["method"], line["variant"]) == (title, variant)]
        cells = [
            _spread([100 * run["networks"][network]["last"][key] for run in runs])
            for network in ("network", "averaged")
            for key in ("mean_average_precision", "mean_f1")
        ]
        print(f"| {title} | {variant} | {' | '.join(cells)} |")
    print("\n| scenario, seed | network | noisy peak | clean peak | of | clean mAP lost, points |")
    print("|---|---|---|---|---|---|")
    for line in lines:
        for name, peaks in line.get("peaks", {}).items():
            where = f"{line['scenario']}, {line['seed']}"
            cells = (where, name, peaks["noisy"], peaks["clean"], peaks["last"])
            print(f"| {' | '.join(map(str, cells))} | {100 * peaks['lost']:.2f} |")


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ({statistics.stdev(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("runs/fidelity"))
    told = parser.parse_args()
    if told.what == "table":
        table()
    else:
        run(told.out)

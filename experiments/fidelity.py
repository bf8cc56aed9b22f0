"""The comparisons behind docs/results/fidelity.md: methods as released and as we run them.

    export ADAGC_FEATURES=$(python experiments/features.py aid --out runs/aid-arrays)
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
_MAP = "mean_average_precision"
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


def of(title: str, variant: str) -> list[dict[str, Any]]:
    """The recorded runs of a variant, by seed."""
    return [line for line in recorded() if (line["method"], line["variant"]) == (title, variant)]


def scores(title: str, variant: str, network: str, metric: str = _MAP) -> list[float]:
    """Test scores of a variant at the last epoch in per cent, by seed."""
    return [100 * run["networks"][network]["last"][metric] for run in of(title, variant)]


def mean(title: str, variant: str, network: str = "network", metric: str = _MAP) -> float:
    """Mean of these scores over seeds."""
    return statistics.mean(scores(title, variant, network, metric))


def differences(title: str, one: str, other: str, network: str = "network") -> list[float]:
    """Points of mAP by which one variant of a method exceeds another, by seed."""
    pairs = zip(scores(title, one, network), scores(title, other, network), strict=True)
    return [first - second for first, second in pairs]


def table() -> str:
    """Markdown: mean and unbiased deviation over seeds of every variant."""
    lines = ["| method | variant | mAP | mF1 | averaged: mAP | mF1 |", "|---|---|---|---|---|---|"]
    for title, variant, _ in VARIANTS:
        cells = [
            _spread(scores(title, variant, network, key))
            for network in ("network", "averaged")
            for key in (_MAP, "mean_f1")
        ]
        lines.append(f"| {title} | {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def peaks(network: str | None = None) -> list[dict[str, Any]]:
    """Where noisy and clean validation mAP peak in every whole run of AN, by network."""
    return [
        {"run": f"{line['scenario']}, {line['seed']}", "network": name, **found}
        for line in recorded()
        for name, found in line.get("peaks", {}).items()
        if network in (None, name)
    ]


def peaks_table() -> str:
    """Markdown: the peaks of every run, and what stopping at the noisy one costs."""
    lines = [
        "| scenario, seed | network | noisy peak | clean peak | of | clean mAP lost, points |",
        "|---|---|---|---|---|---|",
    ]
    for found in peaks():
        cells = (found[key] for key in ("run", "network", "noisy", "clean", "last"))
        lines.append(f"| {' | '.join(map(str, cells))} | {100 * found['lost']:.2f} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ({statistics.stdev(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("runs/fidelity"))
    told = parser.parse_args()
    if told.what == "table":
        print(table(), peaks_table(), sep="\n\n")
    else:
        run(told.out)

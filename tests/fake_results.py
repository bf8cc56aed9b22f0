"""Results of a bench without training: from numbers, or from predictions in real folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from adagc.bench.jobs import Job
from adagc.bench.results import Result, Results
from adagc.metrics import METRICS, score
from adagc.training.records import TestedNetwork, TestRecord
from adagc.training.runs import Run

_BLANK = {"average_precision": [], "precision": [], "recall": [], "f1": []}
PER_CLASS = {**_BLANK, "support": [], "predicted": []}


def make_job(label: str, seed: int, method: str | None = None, folder: Path | None = None) -> Job:
    where = str(folder or Path("nowhere") / label / str(seed))
    return Job("tiny", label, method or label, {}, {"seed": seed}, where)


def with_told(results: Results, label: str, *options: str) -> Results:
    """The results, with the runs of a row told how frequent labels are by these options."""
    jobs = [replace(job, told=options) if job.label == label else job for job in results.jobs]
    return replace(results, jobs=tuple(jobs))


def scored(values: Sequence[float] | float) -> dict:
    """What scores.json holds for seven values as printed, or for one that all metrics share."""
    seven = [values] * 7 if isinstance(values, int | float) else values
    printed = zip(METRICS.values(), seven, strict=True)
    return {metric.key: value / metric.scale for metric, value in printed} | {
        "per_class": PER_CLASS
    }


def tested(tables: Mapping[str, Mapping[str, dict]]) -> Mapping[str, TestedNetwork]:
    """Networks as a run of the first format names them, from what scores.json holds."""
    networks = {
        name: {which: {"epoch": 2, **scores} for which, scores in choices.items()}
        for name, choices in tables.items()
    }
    about = {"split": "test", "images": 1, "threshold": 0.5, "classes": [], "method": "any"}
    return TestRecord.from_dict({**about, "networks": networks}).networks


def from_numbers(
    rows: Mapping[str, Sequence[Sequence[float] | float]],
    *,
    planned: int | None = None,
    methods: Mapping[str, str] | None = None,
    networks: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    failed: Mapping[str, Sequence[str]] | None = None,
    seconds: float = 60.0,
) -> Results:
    """Rows with the numbers of every run; `networks` adds others: label, name -> values by seed."""
    jobs, finished = [], []
    for label, runs in rows.items():
        method = (methods or {}).get(label, label)
        count = max(len(runs), planned or 0)
        jobs += [make_job(label, seed, method) for seed in range(count)]
        for seed, values in enumerate(runs):
            more = (networks or {}).get(label, {})
            tables = {"network": {"last": scored(values)}}
            tables |= {name: {"last": scored(own[seed])} for name, own in more.items()}
            run = Run(Path("nowhere"))
            finished.append(Result(label, method, seed, run, seconds + seed, tested(tables)))
    return Results("tiny", tuple(jobs), tuple(finished), failed or {})


def from_predictions(
    folder: Path,
    truth: np.ndarray,
    rows: Mapping[str, Mapping[int, np.ndarray]],
    *,
    seconds: Mapping[str, float] | None = None,
    planned: int | None = None,
    failed: Mapping[str, Sequence[str]] | None = None,
    methods: Mapping[str, str] | None = None,
    name: str = "network",
) -> Results:
    """Rows of predictions by seed, written as a run leaves them."""
    jobs, finished = [], []
    for label, runs in rows.items():
        method = (methods or {}).get(label, label)
        for seed in range(max([*(seed + 1 for seed in runs), planned or 0])):
            place = folder / f"{label.replace('/', '-')}-{seed}"
            jobs.append(make_job(label, seed, method, place))
            if seed not in runs:
                continue
            place.mkdir(parents=True)
            arrays = {f"{name}-last": runs[seed], "clean": truth.astype(np.uint8)}
            save_file(arrays, place / "predictions.safetensors")
            table = {name: {"last": score(truth, runs[seed], absent="skip").to_dict()}}
            took = (seconds or {}).get(label, 60.0)
            finished.append(Result(label, method, seed, Run(place), took, tested(table)))
    return Results("tiny", tuple(jobs), tuple(finished), failed or {})

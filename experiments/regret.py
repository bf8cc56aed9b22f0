"""What a choice by noisy validation labels costs, from the records of experiments/selection.py.

A line is one training: method, options and seed and, for the network and its average, the value of
every criterion after every epoch ("auc", "tempered", ...) with the clean test mAP ("test"). There
are three kinds: a "trial" of tuning, a whole "run", and a finished run of a "bench", which is read
from its folder or from a pack. The last has clean test scores of two epochs only, says which one
was "kept", and has the clean mAP of the validation images after every epoch ("validation").
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adagc.bench.jobs import DONE, Job
from adagc.bench.packs import unpack
from adagc.bench.results import Result, Results, collect
from adagc.errors import AdagcError
from adagc.methods import outline
from adagc.metrics import CRITERIA
from adagc.metrics.noisy import DEFAULT
from adagc.training.views import VIEWS, View

TITLES = {
    "aid": "AID, frozen features",
    "ucm": "UC Merced, frozen features",
    "aid-confirmed": "AID, frozen features, seeds 10 to 14",
    "ucm-confirmed": "UC Merced, frozen features, seeds 10 to 14",
    "demo-random": "Demo-Random",
    "demo-dominant": "Demo-Dominant",
    "mosaic-random": "Mosaic-Random, frozen features",
    "mosaic-dominant": "Mosaic-Dominant, frozen features",
}
QUESTIONS = {
    "options": "options",
    "method": "method and options",
    "whole": "method, as `--choose` does",
    "epoch": "epoch",
    "checked": "epoch (validation mAP)",
}
NAMES: tuple[str, ...] = (*CRITERIA, "blind")

Line = Mapping[str, Any]


def read(path: Path) -> list[dict[str, Any]]:
    """The recorded lines; one that a killed process has left incomplete is removed."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return [json.loads(line) for line in content[:whole].splitlines()]


def lines_of(results: Results, data: str) -> Iterator[Line]:
    """The finished runs of a bench as lines; those that are told more than labels are left out."""
    for result in results.finished:
        if not results.given(result.label) & {"truth", "priors"}:
            networks = {
                view.word: found
                for view in (VIEWS["averaged-best"], VIEWS["network-best"])
                if (found := _epochs(result, view)) is not None
            }
            job = next(
                job for job in results.jobs if (job.label, job.seed) == (result.label, result.seed)
            )
            yield {
                "data": data, "kind": "bench", "method": result.method, "seed": result.seed,
                "options": dict(job.options), "epochs": len(result.run.history),
                "networks": networks, "seconds": round(result.seconds, 1),
            }  # fmt: skip


def _epochs(result: Result, view: View) -> dict[str, Any] | None:
    """The criteria of one network after every epoch, and the clean scores that there are."""
    history, name = result.run.history, view.of(result.networks)
    if name is None or not history:
        return None
    tested = {at.epoch: at.scores for at in result.networks[name].epochs.values()}
    kept = result.networks[name].epochs.get(view.choice)
    if kept is None or any(math.isnan(line.criterion(DEFAULT, name)) for line in history):
        return None  # it was trained before there were criteria
    found: dict[str, Any] = {
        by: [round(line.criterion(by, name), 5) for line in history] for by in CRITERIA
    }
    found["kept"] = kept.epoch
    found["test"] = [
        round(tested[line.epoch].mean_average_precision, 5) if line.epoch in tested else None
        for line in history
    ]
    clean = [None if one.oracle is None else one.oracle.validation.get(name) for one in history]
    known = [round(one.mean_average_precision, 5) for one in clean if one is not None]
    if len(known) == len(history):
        found["validation"] = known
    return found


def bench(folder: Path) -> Results:
    """The results in a pack, or in the folder of a scenario that a bench has written.

    Raises AdagcError if it holds a method with a seed twice, trained with different settings.
    """
    if (folder / "pack.json").exists():
        return unpack(folder)[1]
    jobs = []
    for path in sorted(folder.glob(f"*/*/{DONE}")):
        values = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: values[name] for name in Job.__dataclass_fields__ if name in values}
        jobs.append(Job(**{**fields, "folder": str(path.parent)}))
    seen: dict[tuple[str, int], str] = {}
    for job in jobs:
        other = seen.setdefault((job.label, job.seed), job.folder)
        if other != job.folder:
            raise AdagcError(
                f"{other} and {job.folder} are the same method and seed with other settings: move"
                " one of them elsewhere"
            )
    return collect(folder.name, jobs)


@dataclass(frozen=True)
class Regret:
    """What one choice cost."""

    data: str
    question: str  # what was chosen: see `regrets`
    case: str  # what it was chosen for: a method and its network, or "all methods"
    seed: int
    by: str  # name of the criterion, or "blind": without looking at any validation label
    cost: float  # points of clean test mAP below the best choice in hindsight


def regrets(lines: Iterable[Line]) -> list[Regret]:
    """The cost of every choice, by every criterion.

    - "options": the options of a method, from the trials of its grid, after their last epochs.
      Blind is what a trial that is drawn at random costs on average.
    - "method": a method with its options, from all trials of all methods, likewise.
    - "whole": a method, from whole runs, at the epoch that the noisy AUC has kept. Methods that are
      told label frequencies are left out, as `adagc bench --choose` does. Blind as above.
    - "epoch": the epoch of a run, for the network and for its average. Blind is the last epoch.
    - "checked": the same for runs of a bench, by clean labels of the validation images, because
      such runs are not tested after every epoch.
    """
    lines = list(lines)
    return [*_among_trials(lines), *_among_epochs(lines), *_among_methods(lines)]


def _among_trials(lines: Iterable[Line]) -> Iterator[Regret]:
    trials: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        if line["kind"] == "trial":
            for case in (line["method"], "all methods"):
                trials.setdefault((line["data"], case, line["seed"]), []).append(line)
    for (data, case, seed), tried in trials.items():
        last = [
            {key: one[-1] for key, one in line["networks"]["network"].items()} for line in tried
        ]
        question = "method" if case == "all methods" else "options"
        yield from _between(last, data, question, case, seed)


def _among_epochs(lines: Iterable[Line]) -> Iterator[Regret]:
    questions = {"run": ("epoch", "test"), "bench": ("checked", "validation")}
    for line in lines:
        question, clean = questions.get(line["kind"], ("", ""))
        for name, epochs in line["networks"].items():
            if clean in epochs:
                values: dict[str, Sequence[float]] = {by: epochs[by] for by in CRITERIA}
                costs = _costs(values, epochs[clean], blind=epochs[clean][-1])
                case = f"{line['method']}, {name}"
                for by, cost in costs.items():
                    yield Regret(line["data"], question, case, line["seed"], by, cost)


def _among_methods(lines: Iterable[Line]) -> Iterator[Regret]:
    groups: dict[tuple[str, str, int], dict[str, Mapping[str, float]]] = {}
    # A run of this experiment counts before one of a bench, which has fewer clean scores.
    for line in sorted(lines, key=lambda line: str(line["kind"]), reverse=True):
        if line["kind"] in ("run", "bench") and not _is_told(line["method"]):
            for name, epochs in line["networks"].items():
                group = groups.setdefault((line["data"], name, line["seed"]), {})
                group.setdefault(line["method"], _kept(epochs))
    for (data, name, seed), found in groups.items():
        yield from _between(list(found.values()), data, "whole", f"all methods, {name}", seed)


def _is_told(title: str) -> bool:
    return bool(outline(title).needs & {"truth", "priors"})


def _kept(epochs: Mapping[str, Any]) -> dict[str, float]:
    """Criteria and clean test mAP at the epoch that was kept, or would have been."""
    auc = epochs[DEFAULT]
    place = epochs["kept"] - 1 if "kept" in epochs else auc.index(max(auc))
    return {key: epochs[key][place] for key in (*CRITERIA, "test")}


def _between(
    found: Sequence[Mapping[str, float]], data: str, question: str, case: str, seed: int
) -> Iterator[Regret]:
    """What it costs to choose one of these; nothing if there is only one."""
    if len(found) > 1:
        tests = [one["test"] for one in found]
        values = {by: [one[by] for one in found] for by in NAMES if by in found[0]}
        for by, cost in _costs(values, tests, blind=statistics.mean(tests)).items():
            yield Regret(data, question, case, seed, by, cost)


def _costs(
    values: Mapping[str, Sequence[float]], tests: Sequence[float], blind: float
) -> dict[str, float]:
    """Points of clean test mAP that each criterion loses, with the first of equal values."""
    best = max(tests)
    chosen = {by: tests[one.index(max(one))] for by, one in values.items()}
    return {by: 100 * (best - test) for by, test in {**chosen, "blind": blind}.items()}


def table(found: Sequence[Regret]) -> str:
    """Markdown: mean regret, and the worst one, of every criterion for every question."""
    lines = [
        f"| data | chosen | cases | {' | '.join(NAMES)} |",
        f"|{'---|' * (len(NAMES) + 3)}",
    ]
    for data in TITLES:
        for question, words in QUESTIONS.items():
            here = [one for one in found if (one.data, one.question) == (data, question)]
            if not here:
                continue
            costs = {by: [one.cost for one in here if one.by == by] for by in NAMES}
            means = {by: statistics.mean(values) for by, values in costs.items()}
            least = min(means[by] for by in CRITERIA)
            cells = [_cell(means[by], max(costs[by]), bold=means[by] == least) for by in NAMES]
            count = len(costs["blind"])
            lines.append(f"| {TITLES[data]} | {words} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(mean: float, worst: float, *, bold: bool) -> str:
    return f"{f'**{mean:.2f}**' if bold else f'{mean:.2f}'} ({worst:.1f})"


def by_case(found: Sequence[Regret], data: str, question: str) -> str:
    """Markdown: mean regret over seeds of every case."""
    lines = [f"| {question} of | {' | '.join(NAMES)} |", f"|{'---|' * (len(NAMES) + 1)}"]
    here = [one for one in found if (one.data, one.question) == (data, question)]
    for case in dict.fromkeys(one.case for one in here):
        means = [
            statistics.mean(one.cost for one in here if (one.case, one.by) == (case, by))
            for by in NAMES
        ]
        lines.append(f"| {case} | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return "\n".join(lines) + "\n"


def differences(found: Sequence[Regret], one: str, other: str) -> str:
    """How much less one criterion loses than another, per question: mean over seeds, and error."""
    lines = []
    for data in TITLES:
        for question, words in QUESTIONS.items():
            here = [r for r in found if (r.data, r.question) == (data, question)]
            means = []
            for seed in sorted({r.seed for r in here}):
                cost = {
                    by: statistics.mean(r.cost for r in here if (r.seed, r.by) == (seed, by))
                    for by in (one, other)
                }
                means.append(cost[other] - cost[one])
            if len(means) > 1:
                error = statistics.stdev(means) / math.sqrt(len(means))
                lines.append(
                    f"{TITLES[data]}, {words}: {one} loses {statistics.mean(means):.2f} less than"
                    f" {other} (standard error over {len(means)} seeds {error:.2f})"
                )
    return "\n".join(lines)

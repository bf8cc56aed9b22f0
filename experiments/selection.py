"""What choosing by noisy validation labels costs: docs/results/selection.md, resumable run by run.

    python experiments/features.py aid --out runs/aid-arrays
    python experiments/features.py ucmerced --out runs/ucm-arrays
    python experiments/selection.py run aid  --features runs/aid-arrays/maps-96
    python experiments/selection.py run ucm  --features runs/ucm-arrays/maps-96
    python experiments/selection.py run demo
    python experiments/selection.py table                            (prints Markdown)

Every method that trains without clean labels is trained with all options of its grid as adagc tune
does (kind "trial"), and once in full with the options of the scenario (kind "run"), for five seeds.
After every epoch the criteria on noisy validation labels and the clean test mAP are noted; one line
of selection-<data>.jsonl per training, in docs/results/data or the folder of --out. A training that
has a line is not repeated. The criteria never see clean labels; `regrets` reads these afterwards.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adagc.bench.scenarios import Scenario, load
from adagc.datasets.collection import Collection
from adagc.errors import UnsuitedError
from adagc.inference import predict
from adagc.methods import find, registry
from adagc.methods.base import Method, reported_by
from adagc.methods.state import AveragedNetwork
from adagc.metrics import CRITERIA, score
from adagc.metrics.noisy import DEFAULT
from adagc.models.spec import PLAIN_BACKBONES
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve, suited
from adagc.tuning.search import grid, space
from adagc.tuning.tune import trial_epochs
from adagc.types import NetworkRole, Reported

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "data"
SCENARIOS = {"aid": "aid-features", "ucm": "aid-features", "demo": "demo-random"}
TITLES = {"aid": "AID, frozen features", "ucm": "UC Merced, frozen features", "demo": "Demo-Random"}
SHARE = 0.5  # of the training images, in trials
SEEDS = 5

Line = Mapping[str, Any]


# -- training ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """One training."""

    kind: str  # "trial" or "run"
    method: str
    options: Mapping[str, Any]
    seed: int
    epochs: int

    @property
    def key(self) -> str:
        """What tells it from the others."""
        told = dict(sorted(self.options.items()))
        return json.dumps([self.kind, self.method, told, self.seed, self.epochs])


def plans(scenario: Scenario, seeds: Iterable[int]) -> Iterator[Plan]:
    """Every training, one seed after the other."""
    whole = scenario.config(scenario.seeds[0]).epochs
    for seed in seeds:
        for title, method in registry().items():
            if "truth" in method.needs:
                continue
            told = scenario.told(title)
            for point in grid(space(method)) if method.grid else [{}]:
                epochs = trial_epochs(scenario, method)
                yield Plan("trial", title, {**told, **point}, seed, epochs)
            yield Plan("run", title, told, seed, whole)


def run(data: str, out: Path, features: str | None, count: int) -> None:
    """Train whatever has no line yet."""
    if features is not None:
        os.environ["ADAGC_FEATURES"] = features
    scenario = load(SCENARIOS[data])
    first = scenario.seeds[0]
    path = out / f"selection-{data}.jsonl"
    known = {_plan(line).key for line in read(path)}
    wanted = [
        plan for plan in plans(scenario, range(first, first + count)) if plan.key not in known
    ]
    print(f"{len(known)} trainings are recorded, {len(wanted)} are missing", flush=True)
    if wanted:
        note_environment(path.with_suffix(".json"))
    collection = open_configured(scenario.config(first))
    for number, plan in enumerate(wanted, 1):
        began = time.perf_counter()
        try:
            networks, status = training(scenario, collection, plan)
        except UnsuitedError as error:
            print(f"{plan.method}: {error}", flush=True)
            continue
        line = {
            "data": data, **vars(plan), "status": status, "networks": networks,
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{number} of {len(wanted)}: {plan.key} {line['seconds']} s", flush=True)


def note_environment(path: Path) -> None:
    """Add versions, commit and machine of this process to those that have made the record."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    now = environment()
    if now not in known:
        path.write_text(json.dumps([*known, now], indent=1) + "\n", encoding="utf-8")


def training(
    scenario: Scenario, collection: Collection, plan: Plan
) -> tuple[dict[str, dict[str, list[float]]], dict[str, Any]]:
    """The criteria and the clean test mAP of every epoch, by network, and the last status."""
    config = replace(scenario.config(plan.seed), epochs=plan.epochs, oracle=False)
    momentum = config.average if plan.kind == "run" else None
    # The average is the watcher's: the loop's own cannot be tested after every epoch.
    config = replace(config, average=None, share=SHARE if plan.kind == "trial" else config.share)
    config = resolve(config, collection.images)
    method = watching(find(plan.method), momentum)(**plan.options)
    plain = config.backbone in PLAIN_BACKBONES
    images = suited(collection.images, plain=plain, head=method.head())
    rows, truth = collection.splits["test"], collection.truth
    assert truth is not None
    clean, tested = truth[rows], []

    def look(networks: Mapping[str, Reported]) -> None:
        tested.append(
            {
                name: score(clean, predict(one.network, images, rows), absent="skip")
                for name, one in networks.items()
            }
        )

    method.look = look
    # Without a test split nothing clean is scored but here.
    splits = {name: collection.splits[name] for name in ("train", "val")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = train(config, method, collection=replace(collection, splits=splits))
    networks = {
        name: {
            **{
                criterion: [round(line.criterion(criterion, name), 5) for line in trained.history]
                for criterion in CRITERIA
            },
            "test": [round(scores[name].mean_average_precision, 5) for scores in tested],
        }
        for name in ("network", *(["averaged"] if momentum is not None else []))
    }
    return networks, dict(trained.history[-1].status)


def watching(kind: type[Method], momentum: float | None) -> type[Any]:
    """A method whose networks are looked at after every epoch, when they are validated.

    Args:
        kind: The method.
        momentum: Momentum of an averaged copy that is reported, too, as the loop would; None for
            no copy.
    """

    class Watching(kind):  # type: ignore[misc, valid-type]
        look: Callable[[Mapping[str, Reported]], None]

        def setup(self, network: Any, task: Any) -> None:
            super().setup(network, task)
            self.followed = [network]  # in a list, or it would become a part of the method
            if momentum is not None:
                self.copy = AveragedNetwork(network, momentum)

        def after_step(self, network: Any) -> None:
            super().after_step(network)
            if momentum is not None:
                self.copy.update(network)

        def reported(self, network: Any) -> dict[str, Reported]:
            networks = dict(super().reported(network))
            if momentum is not None:
                networks["averaged"] = Reported(self.copy.network, NetworkRole.AVERAGE)
            return networks

        def end_epoch(self, scores: Any, progress: Any) -> Any:
            self.look(reported_by(self, self.followed[0]))
            return super().end_epoch(scores, progress)

    Watching.__doc__, Watching.__name__ = kind.__doc__, kind.__name__
    return Watching


# -- what is recorded --------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The recorded lines; one that a killed process has left incomplete is removed."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return [json.loads(line) for line in content[:whole].splitlines()]


def _plan(line: Line) -> Plan:
    return Plan(**{name: line[name] for name in Plan.__dataclass_fields__})


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
    - "epoch": the epoch of a run, for the network and for its average. Blind is the last epoch.
    """
    lines = list(lines)
    found = []
    trials: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        if line["kind"] == "trial":
            for case in (line["method"], "all methods"):
                trials.setdefault((line["data"], case, line["seed"]), []).append(line)
        else:
            for name, epochs in line["networks"].items():
                case = f"{line['method']}, {name}"
                values: dict[str, Any] = {by: epochs[by] for by in CRITERIA}
                costs = _costs(values, epochs["test"], blind=epochs["test"][-1])
                about = line["data"], "epoch", case, line["seed"]
                found += [Regret(*about, by, cost) for by, cost in costs.items()]
    for (data, case, seed), tried in trials.items():
        if len(tried) > 1:
            last = [{key: one[-1] for key, one in line["networks"]["network"].items()}
                    for line in tried]  # fmt: skip
            tests = [values["test"] for values in last]
            values = {by: [one[by] for one in last] for by in CRITERIA}
            costs = _costs(values, tests, blind=statistics.mean(tests))
            question = "method" if case == "all methods" else "options"
            found += [Regret(data, question, case, seed, by, cost) for by, cost in costs.items()]
    return found


def _costs(
    values: Mapping[str, Sequence[float]], tests: Sequence[float], blind: float
) -> dict[str, float]:
    """Points of clean test mAP that each criterion loses, with the first of equal values."""
    best = max(tests)
    chosen = {by: tests[one.index(max(one))] for by, one in values.items()}
    return {by: 100 * (best - test) for by, test in {**chosen, "blind": blind}.items()}


QUESTIONS = {"options": "options", "method": "method and options", "epoch": "epoch"}


def table(found: Sequence[Regret]) -> str:
    """Markdown: mean regret, and the worst one, of every criterion for every question."""
    names = [*CRITERIA, "blind"]
    lines = [
        f"| data | chosen | cases | {' | '.join(names)} |",
        f"|{'---|' * (len(names) + 3)}",
    ]
    for data in TITLES:
        for question, words in QUESTIONS.items():
            here = [one for one in found if (one.data, one.question) == (data, question)]
            if not here:
                continue
            costs = {by: [one.cost for one in here if one.by == by] for by in names}
            means = {by: statistics.mean(values) for by, values in costs.items()}
            least = min(means[by] for by in CRITERIA)
            cells = [_cell(means[by], max(costs[by]), bold=means[by] == least) for by in names]
            count = len(costs["blind"])
            lines.append(f"| {TITLES[data]} | {words} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(mean: float, worst: float, *, bold: bool) -> str:
    return f"{f'**{mean:.2f}**' if bold else f'{mean:.2f}'} ({worst:.1f})"


def by_case(found: Sequence[Regret], data: str, question: str) -> str:
    """Markdown: mean regret over seeds of every case."""
    names = [*CRITERIA, "blind"]
    lines = [f"| {question} of | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    here = [one for one in found if (one.data, one.question) == (data, question)]
    for case in dict.fromkeys(one.case for one in here):
        means = [
            statistics.mean(one.cost for one in here if (one.case, one.by) == (case, by))
            for by in names
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("data", nargs="?", choices=[*SCENARIOS])
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--features", help="folder that experiments/features.py has written")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--question", choices=[*QUESTIONS], help="the cases of this one")
    told = parser.parse_args()
    if told.what == "run":
        run(told.data, told.out, told.features, told.seeds)
        return
    lines = [line for data in SCENARIOS for line in read(told.out / f"selection-{data}.jsonl")]
    found = regrets(lines)
    if told.question is not None:
        print(by_case(found, told.data, told.question))
        return
    print(table(found))
    for other in CRITERIA:
        if other != DEFAULT:
            print(differences(found, DEFAULT, other))


if __name__ == "__main__":
    main()

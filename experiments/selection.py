"""What choosing by noisy validation labels costs: docs/results/selection.md, resumable run by run.

    python experiments/features.py aid --out runs/aid-arrays         (ucmerced, mosaic: likewise)
    python experiments/selection.py run aid --features runs/aid-arrays/maps-96
    python experiments/selection.py run mosaic-dominant --features runs/mosaic-arrays/maps-150
    python experiments/selection.py run demo-dominant --kinds run --methods AN WAN AdaGC
    python experiments/selection.py plan demo-dominant               (what is missing, and how long)
    python experiments/selection.py table                            (prints Markdown)
    python experiments/selection.py table --bench demo-dominant=runs/bench/demo-dominant

Every method that trains without clean labels is trained with all options of its grid as adagc tune
does (kind "trial"), and once in full with the options of the scenario (kind "run"), for five seeds.
After every epoch the criteria on noisy validation labels and the clean test mAP are noted; one line
of selection-<data>.jsonl per training, in docs/results/data or the folder of --out. A training that
has a line is not repeated. The criteria never see clean labels; `regret.regrets` reads these
afterwards.

Packs of a bench in docs/results/data, and the folders of --bench, are read too: their runs have the
criteria of every epoch, so that what it costs to choose a method needs no further training.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regret import (
    QUESTIONS,
    Line,
    bench,
    by_case,
    differences,
    lines_of,
    read,
    regrets,
    table,
)
from watching import watching

from adagc.bench.scenarios import Scenario, load
from adagc.datasets.collection import Collection as Images
from adagc.errors import UnsuitedError
from adagc.inference import predict
from adagc.methods import find, registry
from adagc.metrics import CRITERIA, score
from adagc.metrics.noisy import DEFAULT
from adagc.models.spec import PLAIN_BACKBONES
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve, suited
from adagc.tuning.search import grid, space
from adagc.tuning.tune import trial_epochs
from adagc.types import Reported

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "data"
SCENARIOS = {
    "aid": "aid-features",
    "ucm": "aid-features",  # the same settings, on other features
    "demo-random": "demo-random",
    "demo-dominant": "demo-dominant",
    "mosaic-random": "mosaic-features-random",
    "mosaic-dominant": "mosaic-features-dominant",
}
# Packs of a bench that are read as well, by data: five seeds with all methods and the newest.
PACKS = {
    "aid-confirmed": "beyond/aid-features-tuned",
    "ucm-confirmed": "beyond/ucm-features-tuned",
    "demo-random": "beyond/demo-random",
    "demo-dominant": "beyond/demo-dominant",
    "mosaic-random": "beyond/mosaic-features-random",
    "mosaic-dominant": "beyond/mosaic-features-dominant",
}
SHARE = 0.5  # of the training images, in trials
SEEDS = 5
KINDS = ("trial", "run")


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


def plans(
    scenario: Scenario,
    seeds: Iterable[int],
    kinds: Collection[str] = KINDS,
    methods: Collection[str] | None = None,
) -> Iterator[Plan]:
    """Every training of these kinds and methods, one seed after the other."""
    whole = scenario.config(scenario.seeds[0]).epochs
    for seed in seeds:
        for title, method in registry().items():
            if "truth" in method.needs or (methods is not None and title not in methods):
                continue
            told = scenario.told(title)
            if "trial" in kinds:
                for point in grid(space(method)) if method.grid else [{}]:
                    epochs = trial_epochs(scenario, method)
                    yield Plan("trial", title, {**told, **point}, seed, epochs)
            if "run" in kinds:
                yield Plan("run", title, told, seed, whole)


def missing(scenario: Scenario, path: Path, told: argparse.Namespace) -> list[Plan]:
    """The trainings that the command line asks for and that have no line yet."""
    known = [_plan(line) for line in read(path)]
    first = scenario.seeds[0]
    methods = told.methods and [find(name).title for name in told.methods]
    asked = plans(scenario, range(first, first + told.seeds), told.kinds, methods)
    keys = {plan.key for plan in known}
    wanted = [plan for plan in asked if plan.key not in keys]
    print(f"{len(known)} trainings are recorded, {len(wanted)} are missing", flush=True)
    return wanted


def show(wanted: Sequence[Plan], scenario: Scenario, lines: Sequence[Line]) -> None:
    """Print how long these trainings will take, by the cost of those that are recorded.

    The unit is the cost of an epoch over all training images, as much as AN's; a trial uses a share
    of them.
    """

    def amount(plan: Plan) -> float:
        share = SHARE if plan.kind == "trial" else scenario.config(plan.seed).share
        return plan.epochs * share * find(plan.method).cost

    whole = sum(map(amount, wanted))
    print(f"{whole:.0f} epochs over all training images, if all cost as much as those of AN")
    done = sum(amount(_plan(line)) for line in lines)
    if done:
        hours = whole / done * sum(line["seconds"] for line in lines) / 3600
        print(f"about {hours:.1f} hours on one core, by what {len(lines)} trainings took")


def run(scenario: Scenario, data: str, path: Path, wanted: Sequence[Plan]) -> None:
    """Do these trainings and write a line for each."""
    if wanted:
        note_environment(path.with_suffix(".json"))
    collection = open_configured(scenario.config(scenario.seeds[0]))
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
    scenario: Scenario, collection: Images, plan: Plan
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


def _plan(line: Line) -> Plan:
    return Plan(**{name: line[name] for name in Plan.__dataclass_fields__})


def recorded(out: Path, benches: Mapping[str, Path] | None = None) -> list[Line]:
    """All lines: of trainings, of packs of a bench, and of the folders of others.

    Args:
        out: Folder of the records.
        benches: By data, folders that adagc bench has written; they replace packs.
    """
    lines: list[Line] = []
    for data in SCENARIOS:
        lines += read(out / f"selection-{data}.jsonl")
    packs = {data: out / name for data, name in PACKS.items()}
    there = {data: path for data, path in packs.items() if (path / "pack.json").exists()}
    for data, folder in (there | dict(benches or {})).items():
        lines += lines_of(bench(folder), data)
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["run", "plan", "table"])
    parser.add_argument("data", nargs="?", choices=[*SCENARIOS])
    parser.add_argument("--out", type=Path, default=RECORDS, help="folder of the records")
    parser.add_argument("--features", help="folder that experiments/features.py has written")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what to train")
    parser.add_argument("--methods", nargs="+", help="methods to train; all by default")
    parser.add_argument("--epochs", type=int, help="epochs of whole runs, to try it out")
    parser.add_argument("--scenes", type=int, help="scenes of made-up data, to try it out")
    parser.add_argument("--bench", nargs="+", default=[], metavar="DATA=FOLDER",
                        help="folders of runs, or packs, to read as well")  # fmt: skip
    parser.add_argument("--question", choices=[*QUESTIONS], help="the cases of this one")
    told = parser.parse_args()
    if told.what != "table":
        if told.data is None:
            parser.error(f"{told.what} needs one of {', '.join(SCENARIOS)}")
        if told.features is not None:
            os.environ["ADAGC_FEATURES"] = told.features
        scenario = load(SCENARIOS[told.data])
        scenario = scenario.with_settings(epochs=told.epochs, scenes=told.scenes)
        path = told.out / f"selection-{told.data}.jsonl"
        wanted = missing(scenario, path, told)
        if told.what == "plan":
            show(wanted, scenario, read(path))
        else:
            run(scenario, told.data, path, wanted)
        return
    pairs = (word.partition("=") for word in told.bench)
    found = regrets(recorded(told.out, {data: Path(folder) for data, _, folder in pairs}))
    if told.question is not None:
        print(by_case(found, told.data, told.question))
        return
    print(table(found))
    for other in CRITERIA:
        if other != DEFAULT:
            print(differences(found, DEFAULT, other))


if __name__ == "__main__":
    main()

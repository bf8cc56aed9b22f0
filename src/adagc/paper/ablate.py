"""Ablations of AdaGC, those of the paper and some more: each varies one option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adagc.bench.jobs import Job, make_job, slug
from adagc.bench.results import collect
from adagc.bench.scenarios import Scenario
from adagc.compare import tables
from adagc.compare.outputs import Written, write
from adagc.errors import AdagcError, UsageError
from adagc.paper.canvas import save
from adagc.paper.figures import NothingToDrawError, draw_by_label
from adagc.suggest import hint_or_list
from adagc.training.views import View
from adagc.types import NetworkRole

METHOD = "AdaGC"
# Shares of the training after which calibration starts in the paper: epochs 10, 20 and 30 of 70.
_FIXED = (1 / 7, 2 / 7, 3 / 7)
# Networks and epochs that get a table. The paper's ablations show the scores of the teacher.
VIEWS = (View(NetworkRole.TEACHER, "last"), View(NetworkRole.DEPLOYED, "last"))


@dataclass(frozen=True, eq=False)
class Ablation:
    """One ablation: a question, and the variants of AdaGC that answer it."""

    name: str
    question: str  # title of its tables
    variants: Mapping[str, Mapping[str, Any]]  # row of the table -> options that differ
    paper: bool = False  # whether it is in the paper too


def studies(epochs: int) -> dict[str, Ablation]:
    """All ablations by name, for runs of `epochs` epochs."""
    fixed = [max(1, round(share * epochs)) for share in _FIXED]
    return {
        study.name: study
        for study in (
            Ablation(
                "trigger",
                "When should calibration start: by the teacher's noisy mAP, or at a fixed epoch?",
                {
                    "adaptive": {"trigger_epoch": None},
                    **{f"after epoch {at}": {"trigger_epoch": at} for at in fixed},
                },
                paper=True,
            ),
            Ablation(
                "pseudo-labels",
                "What makes the pseudo-labels: teacher T, averaged student S, raw student S'?",
                {
                    "T + S": {"pseudo_labels": "dual"},
                    "T": {"pseudo_labels": "teacher"},
                    "S": {"pseudo_labels": "student"},
                    "T + S'": {"pseudo_labels": "dual-raw"},
                    "S'": {"pseudo_labels": "raw"},
                },
                paper=True,
            ),
            Ablation(
                "mixup",
                "Does Mixup help?",
                {"with Mixup": {"mixup": 1.0}, "without Mixup": {"mixup": 0.0}},
                paper=True,
            ),
            _sweep("weight", "λ", (2.0, 3.0, 5.0, 7.0, 9.0), "How strong should calibration be?"),
            _sweep("patience", "b_e", (2, 4, 8), "How many epochs to wait for a better teacher?"),
            _sweep(
                "memory_momentum",
                "β_s",
                (0.0, 0.5, 0.8, 0.95),
                "How long should predictions be averaged?",
            ),
            _sweep(
                "balance",
                "γ",
                (0.0, 0.25, 0.5, 0.75, 1.0),
                "How much weight should the teacher's predictions have?",
            ),
        )
    }


def _sweep(option: str, symbol: str, values: tuple[float, ...], question: str) -> Ablation:
    return Ablation(
        option.replace("_", "-"),
        question,
        {f"{symbol} = {value:g}": {option: value} for value in values},
    )


def plan(
    scenario: Scenario, names: Iterable[str], out: Path, seeds: Iterable[int] | None = None
) -> dict[Ablation, list[Job]]:
    """The jobs of each named ablation; variants with the same settings share a run."""
    known = studies(scenario.config(scenario.seeds[0]).epochs)
    chosen: dict[Ablation, list[Job]] = {}
    numbers = dict.fromkeys(scenario.seeds if seeds is None else seeds)
    for name in dict.fromkeys(name.replace("_", "-") for name in names):
        if name not in known:
            raise UsageError(
                f"there is no ablation {name!r}{hint_or_list(name, known, 'ablations')}"
            )
        study = known[name]
        chosen[study] = [
            make_job(
                scenario,
                METHOD,
                seed,
                out,
                options={**scenario.told(METHOD), **options},
                label=label,
            )
            for seed in numbers
            for label, options in study.variants.items()
        ]
    return chosen


def write_study(scenario: Scenario, study: Ablation, jobs: Sequence[Job], out: Path) -> Written:
    """Write the tables of one ablation and a figure of its variants' validation curves."""
    results = collect(scenario.name, jobs)
    title = f"{scenario.title}: {study.question}"
    made = tuple(
        tables.build(results, title=title, made_with=scenario.summary, view=view) for view in VIEWS
    )
    written = Written(scenario, results, made, out / scenario.name / "ablations", slug(study.name))
    write(written)
    drawn = [label for label in results.labels if results.of(label)]
    try:
        save(draw_by_label([(results, drawn)]), written.folder / written.stem)
    except NothingToDrawError:
        pass  # the runs have no clean validation labels
    except AdagcError as error:  # the tables are useful without the figure
        return replace(written, remark=f"no figure of the ablation {study.name}: {error}")
    return written

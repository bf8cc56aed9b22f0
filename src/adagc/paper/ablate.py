"""The ablations of the paper and those that users ask for: one option of AdaGC at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adagc.bench.jobs import Job, make_job, slug
from adagc.bench.results import Choice, collect
from adagc.bench.scenarios import Scenario
from adagc.compare import tables
from adagc.compare.outputs import Written, write
from adagc.errors import AdagcError, UsageError
from adagc.paper.canvas import save
from adagc.paper.figures import NothingToDrawError, draw_by_label
from adagc.suggest import hint_or_list
from adagc.types import NetworkRole

METHOD = "AdaGC"
# Where the paper starts calibration at fixed epochs: 10, 20 and 30 of 70.
_FIXED = (1 / 7, 2 / 7, 3 / 7)
# The paper's ablations judge the teacher.
VIEWS: tuple[tuple[NetworkRole, Choice], ...] = (
    (NetworkRole.TEACHER, "last"),
    (NetworkRole.DEPLOYED, "last"),
)


@dataclass(frozen=True, eq=False)
class Ablation:
    """One question: the same method with one thing changed."""

    name: str
    question: str
    variants: Mapping[str, Mapping[str, Any]]  # row of the table -> options that differ
    paper: bool = False  # whether the paper asks it too


def studies(epochs: int) -> dict[str, Ablation]:
    """All there are, for runs of so many epochs."""
    fixed = [max(1, round(share * epochs)) for share in _FIXED]
    return {
        study.name: study
        for study in (
            Ablation(
                "trigger",
                "When to start calibrating: by the teacher's noisy mAP, or at a fixed epoch?",
                {
                    "adaptive": {"trigger_epoch": None},
                    **{f"after epoch {at}": {"trigger_epoch": at} for at in fixed},
                },
                paper=True,
            ),
            Ablation(
                "pseudo-labels",
                "What pseudo-labels are made of: teacher T, averaged student S, raw student S'?",
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
            _sweep("weight", "λ", (2.0, 3.0, 5.0, 7.0, 9.0), "How strongly to calibrate?"),
            _sweep("patience", "b_e", (2, 4, 8), "How long to wait for a better teacher?"),
            _sweep(
                "memory_momentum", "β_s", (0.0, 0.5, 0.8, 0.95), "How long to remember predictions?"
            ),
            _sweep("balance", "γ", (0.0, 0.25, 0.5, 0.75, 1.0), "How much to trust the teacher?"),
        )
    }


def _sweep(option: str, symbol: str, values: tuple[float, ...], question: str) -> Ablation:
    return Ablation(
        option, question, {f"{symbol} = {value:g}": {option: value} for value in values}
    )


def plan(
    scenario: Scenario, names: Iterable[str], out: Path, seeds: Iterable[int] | None = None
) -> dict[Ablation, list[Job]]:
    """The jobs of every study; variants that come to the same are the same run."""
    known = studies(scenario.config(scenario.seeds[0]).epochs)
    chosen: dict[Ablation, list[Job]] = {}
    numbers = dict.fromkeys(scenario.seeds if seeds is None else seeds)
    for name in dict.fromkeys(names):
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
    """The tables of one ablation, and the validation curves of its variants."""
    results = collect(scenario.name, jobs)
    title = f"{scenario.title}: {study.question}"
    made = tuple(
        tables.build(results, title=title, made_with=scenario.summary, role=role, choice=choice)
        for role, choice in VIEWS
    )
    written = Written(scenario, results, made, out / scenario.name / "ablations", slug(study.name))
    write(written)
    drawn = [label for label in results.labels if results.of(label)]
    try:
        save(draw_by_label([(results, drawn)]), written.folder / written.stem)
    except NothingToDrawError:
        pass  # without clean labels there are no such curves
    except AdagcError as error:  # the tables of all studies are worth having without
        return replace(written, remark=f"no curves of {study.name}: {error}")
    return written

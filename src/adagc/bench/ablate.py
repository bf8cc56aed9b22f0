"""The ablations of the paper and those that users ask for: one option of AdaGC at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adagc.bench.jobs import Job, make_job
from adagc.bench.scenarios import Scenario
from adagc.errors import UsageError

METHOD = "AdaGC"
# Where the paper starts calibration at fixed epochs: 10, 20 and 30 of 70.
_FIXED = (1 / 7, 2 / 7, 3 / 7)


@dataclass(frozen=True, eq=False)
class Study:
    """One question: the same method with one thing changed."""

    name: str
    question: str
    variants: Mapping[str, Mapping[str, Any]]  # row of the table -> options that differ
    paper: bool = False  # whether the paper asks it too


def studies(epochs: int) -> dict[str, Study]:
    """All there are, for runs of so many epochs."""
    fixed = [max(1, round(share * epochs)) for share in _FIXED]
    return {
        study.name: study
        for study in (
            Study(
                "trigger",
                "When to start calibrating: by the teacher's noisy mAP, or at a fixed epoch?",
                {
                    "adaptive": {"trigger_epoch": None},
                    **{f"after epoch {at}": {"trigger_epoch": at} for at in fixed},
                },
                paper=True,
            ),
            Study(
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
            Study(
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


def _sweep(option: str, symbol: str, values: tuple[float, ...], question: str) -> Study:
    return Study(option, question, {f"{symbol} = {value:g}": {option: value} for value in values})


def plan(
    scenario: Scenario, names: Iterable[str], out: Path, seeds: Iterable[int] | None = None
) -> dict[Study, list[Job]]:
    """The jobs of every study; variants that come to the same are the same run."""
    known = studies(scenario.config(scenario.seeds[0]).epochs)
    chosen: dict[Study, list[Job]] = {}
    numbers = dict.fromkeys(scenario.seeds if seeds is None else seeds)
    for name in dict.fromkeys(names):
        if name not in known:
            raise UsageError(f"there is no ablation {name!r}: choose from {', '.join(known)}")
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

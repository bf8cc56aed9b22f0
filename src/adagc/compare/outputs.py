"""What a bench leaves beside its runs: tables in five forms, curves, and a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc.atomic import write_text
from adagc.bench.jobs import Job
from adagc.bench.results import Choice, Results, collect
from adagc.bench.scenarios import Scenario
from adagc.compare import render, tables
from adagc.compare.recommendation import Recommendation, recommend
from adagc.compare.reference import Reference
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from rich.table import Table as RichTable

# The paper's choice first: the deployed network after the last epoch.
VIEWS: tuple[tuple[NetworkRole, Choice], ...] = (
    (NetworkRole.DEPLOYED, "last"),
    (NetworkRole.DEPLOYED, "best"),
    (NetworkRole.AVERAGE, "last"),
    (NetworkRole.AVERAGE, "best"),
)


@dataclass(frozen=True)
class Written:
    """The tables of a scenario, or of one study in it, and where they lie."""

    scenario: Scenario
    results: Results
    tables: tuple[tables.Table, ...]
    folder: Path
    stem: str
    verdict: Recommendation | None = None
    remark: str = ""  # what could not be drawn

    @property
    def sentence(self) -> str:
        """Which method to use, with the uncertainty."""
        return "" if self.verdict is None else self.verdict.sentence

    def terminal(self, width: int) -> RichTable:
        """The first table, for a terminal of so many columns."""
        return render.terminal(self.tables[0], width)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "scenario": self.scenario.name,
            "settings": self.scenario.defaults,
            "runs": {job.name: job.folder for job in self.results.jobs},
            "options": {job.label: dict(job.options) for job in self.results.jobs},
            "tables": render.json(self.tables),
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "failed": {label: list(reasons) for label, reasons in self.results.failed.items()},
        }


def write_tables(
    scenario: Scenario, jobs: Sequence[Job], out: Path, reference: Reference | None = None
) -> Written:
    """The tables of a scenario from its folders, written as table.md, .csv, .tex and .json.

    The values of a `reference` stand beside ours.
    """
    results = collect(scenario.name, jobs)
    made = tuple(
        tables.build(
            results,
            title=scenario.title,
            made_with=scenario.summary,
            role=role,
            choice=choice,
            paper=reference,
            paper_note=scenario.paper_note,
        )
        for role, choice in VIEWS
    )
    said = recommend(results)
    written = Written(scenario, results, made, out / scenario.name, "table", said)
    write(written, [said.sentence])
    return written


def write(written: Written, sentences: Sequence[str] = ()) -> None:
    """All tables in all forms, and sentences below those that people read."""
    folder, stem = written.folder, written.stem
    folder.mkdir(parents=True, exist_ok=True)
    parts = [*(render.markdown(table) for table in written.tables), *sentences]
    write_text(folder / f"{stem}.md", "\n\n".join(part.strip() for part in parts) + "\n")
    write_text(folder / f"{stem}.csv", render.csv(written.tables))
    write_text(folder / f"{stem}.tex", render.latex(written.tables))
    write_text(folder / f"{stem}.json", json.dumps(written.to_dict(), indent=1) + "\n")

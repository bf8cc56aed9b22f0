"""Write the tables and the recommendation of a bench: Markdown, CSV, LaTeX and JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc.atomic import write_text
from adagc.bench.jobs import Job
from adagc.bench.results import Results, collect
from adagc.bench.scenarios import Scenario
from adagc.compare import render, tables
from adagc.compare.recommendation import Recommendation, recommend
from adagc.compare.reference import Reference
from adagc.training.views import VIEWS, View

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Written:
    """The tables of a scenario, or of one ablation study of it, and where they were written."""

    scenario: Scenario
    results: Results
    tables: tuple[tables.Table, ...]
    folder: Path
    stem: str  # name of the files without their suffix
    verdicts: tuple[Recommendation, ...] = ()  # one per table; the first one is that of the bench
    remark: str = ""  # why a figure could not be drawn

    @property
    def verdict(self) -> Recommendation | None:
        """The recommendation in the view that is judged; None if none was made."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def sentence(self) -> str:
        """The recommendation in words; empty if none was made."""
        return "" if self.verdict is None else self.verdict.sentence

    def terminal(self, width: int) -> RichTable:
        """The first table for a terminal with `width` columns."""
        return render.terminal(self.tables[0], width)

    def to_dict(self) -> dict[str, Any]:
        """Tables, settings and recommendation, ready for `json.dumps`."""
        return {
            "scenario": self.scenario.name,
            "settings": self.scenario.defaults,
            "runs": {job.name: job.folder for job in self.results.jobs},
            "options": {job.label: dict(job.options) for job in self.results.jobs},
            "tables": render.json(self.tables),
            "judge": None if self.verdict is None else self.verdict.view.name,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "verdicts": {verdict.view.name: verdict.to_dict() for verdict in self.verdicts},
            "failed": {label: list(reasons) for label, reasons in self.results.failed.items()},
        }


def write_tables(
    scenario: Scenario,
    jobs: Sequence[Job],
    out: Path,
    reference: Reference | None = None,
    *,
    judge: View,
) -> Written:
    """Make the tables of a scenario from its run folders and write them.

    The files table.md, table.csv, table.tex and table.json go to the folder of the scenario. Each
    has all four views: the one that is judged first.

    Args:
        scenario: The scenario.
        jobs: Its jobs, finished or not.
        out: Folder that holds the runs of all scenarios.
        reference: A printed table whose values are shown beside ours.
        judge: The view that the recommendation is made in.
    """
    results = collect(scenario.name, jobs)
    written = make_tables(scenario, results, out / scenario.name, reference, judge=judge)
    write(written, [written.sentence])
    return written


def make_tables(
    scenario: Scenario,
    results: Results,
    folder: Path,
    reference: Reference | None = None,
    *,
    judge: View,
) -> Written:
    """Make the tables of a scenario without writing them; `write` does that.

    Args:
        scenario: The scenario.
        results: The results of its runs, from their folders or from a pack.
        folder: Folder that `write` will write to.
        reference: A printed table whose values are shown beside ours.
        judge: The view that the recommendation is made in.
    """
    verdicts = tuple(recommend(results, view) for view in dict.fromkeys([judge, *VIEWS.values()]))
    made = tuple(
        tables.build(
            results,
            title=scenario.title,
            made_with=scenario.summary,
            view=verdict.view,
            paper=reference,
            paper_note=scenario.paper_note,
            gains=verdict.gains,
            remarks=verdict.notes,
        )
        for verdict in verdicts
    )
    return Written(scenario, results, made, folder, "table", verdicts)


def write(written: Written, sentences: Sequence[str] = ()) -> None:
    """Write all tables in all formats; the sentences go below the tables of the Markdown file."""
    folder, stem = written.folder, written.stem
    folder.mkdir(parents=True, exist_ok=True)
    parts = [*(render.markdown(table) for table in written.tables), *sentences]
    write_text(folder / f"{stem}.md", "\n\n".join(part.strip() for part in parts) + "\n")
    write_text(folder / f"{stem}.csv", render.csv(written.tables))
    write_text(folder / f"{stem}.tex", render.latex(written.tables))
    write_text(folder / f"{stem}.json", json.dumps(written.to_dict(), indent=1) + "\n")

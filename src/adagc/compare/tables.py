"""Build the table of a benchmark as plain data; `adagc.compare.render` prints it.

Numbers have the unit that tables show (per cent; for coverage a number of labels) and are not
rounded here.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from adagc.bench.results import Choice, Result, Results
from adagc.compare.intervals import Difference
from adagc.compare.reference import Reference, Value
from adagc.methods import outline, outlines
from adagc.methods.told import ESTIMATED, GUESSED, MARK, TOLD, Knowledge
from adagc.metrics import METRICS, Metric
from adagc.training.views import DEFAULT, View
from adagc.types import NetworkRole

Mark = Literal["best", "second", ""]

SPREAD = " (and unbiased standard deviation)"  # part of a note; removed for narrow terminals
PRIORS = MARK
CLEAN = "†"
_FOOTNOTES = {
    CLEAN: "trains with clean labels: an upper bound, not counted for bold and italics",
    PRIORS: TOLD,
    ESTIMATED: GUESSED,
}


@dataclass(frozen=True)
class Cell:
    """One metric of one row."""

    mean: float | None  # None in the cell that stands for a missing value
    deviation: float | None  # unbiased standard deviation; None for a single run
    runs: int  # number of runs that the mean is taken over
    mark: Mark = ""


BLANK = Cell(None, None, 0)


@dataclass(frozen=True)
class Row:
    """The results of one method, or of one variant of it."""

    label: str  # as printed; with the name of the network in brackets if it is not the usual one
    method: str  # title of the method
    cells: Mapping[str, Cell]  # by metric, if all runs have it; empty if there are no scores
    finished: int  # number of runs
    planned: int  # number of runs
    failures: tuple[str, ...] = ()
    seconds: float | None = None  # mean training time, by the clock of the table
    footnote: str = ""
    told: tuple[str, ...] = ()  # options through which it is told how frequent labels are
    knows: Knowledge = "none"  # what its runs know of how frequent labels are
    paper: Mapping[str, Value] = field(default_factory=dict)  # printed values, by metric
    state: str = ""  # what is missing: "2 of 3 runs", "failed: ...", "not run"
    competes: bool = True  # whether it can be marked as best or second
    remark: str = ""  # a note about this row below the table


@dataclass(frozen=True)
class Group:
    """Rows under a common heading, which is empty for the variants of an ablation."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """All rows of a scenario for one network and one choice of epoch."""

    scenario: str
    title: str
    network: str  # the word for the network that is shown, as in the name of the view
    choice: Choice
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    paper: str = ""  # source of the paper's values; empty if there are none
    clock: str = "time"  # what `Row.seconds` are: "CPU time", or "time" on the clock
    # What rows gain over baselines in this view: by row, then by baseline.
    gains: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all groups."""
        return tuple(row for group in self.groups for row in group.rows)


def build(
    results: Results,
    *,
    view: View = DEFAULT,
    title: str | None = None,
    made_with: str = "",
    paper: Reference | None = None,
    paper_note: str = "",
    gains: Mapping[str, Mapping[str, Difference]] | None = None,
    remarks: Sequence[str] = (),
) -> Table:
    """Build the table of a scenario.

    Args:
        results: The results of all runs of the scenario.
        view: Which network of every run is shown, after which epoch.
        title: Title of the scenario; its name if None.
        made_with: Settings that a reader must know, in one line.
        paper: Printed values that are shown beside ours.
        paper_note: Data and network with which the paper's values were obtained.
        gains: What rows gain over baselines in this view.
        remarks: Further notes, such as these gains in words.
    """
    ablation = any(label != results.method(label) for label in results.labels)
    rows = [
        row
        for label in results.labels
        for row in _rows(results, label, view, paper, extra=not ablation)
    ]
    rows = _marked(rows)
    source = paper.source + (f", made with {paper_note}" if paper_note else "") if paper else ""
    return Table(
        scenario=results.scenario,
        title=f"{title or results.scenario} ({view.title})",
        network=view.word,
        choice=view.choice,
        groups=(Group("", tuple(rows)),) if ablation else _grouped(rows),
        notes=(*_notes(rows, made_with, remarks), *results.remarks(), *_caveats(results)),
        paper=source if any(row.paper for row in rows) else "",
        clock=results.clock,
        gains=gains or {},
    )


def marks(means: Sequence[float], metric: Metric) -> list[Mark]:
    """Mark the best and the second best of unrounded means.

    Equal means get the same mark; if several are best, the next lower value is still second. A
    single mean gets no mark.
    """
    ranked = sorted(set(means), reverse=metric.better == "up")
    names: tuple[Mark, ...] = ("best", "second")
    by_value = dict(zip(ranked, names, strict=False)) if len(means) > 1 else {}
    return [by_value.get(mean, "") for mean in means]


def _rows(
    results: Results,
    label: str,
    view: View,
    paper: Reference | None,
    *,
    extra: bool,
) -> list[Row]:
    """The row of a label and, if the deployed network learns from another one, a row for that.

    The second row is left out if the first one shows that network already, or an average that is
    equal to it, or if not `extra`.
    """
    method = outline(results.method(label))
    runs = results.of(label)
    name, second, deployed = (
        _named(runs, one) for one in (view.role, NetworkRole.TEACHER, NetworkRole.DEPLOYED)
    )
    main = Row(
        label=f"{label} ({_title(runs, name)})" if name and name == second else label,
        method=method.title,
        cells=_cells(runs, name, view.choice),
        finished=len(runs),
        planned=results.count(label),
        failures=tuple(results.failed.get(label, ())),
        seconds=results.cost(label),
        footnote=footnote(results.given(label)),
        told=results.told(label),
        knows=results.knows(label),
        paper=paper.rows.get(method.title, {}) if paper and label == method.title else {},
        competes="truth" not in method.needs,
    )
    main = replace(main, state=_state(main, results, label, view))
    beside = _cells(runs, second, view.choice)
    twins = view.role is NetworkRole.AVERAGE and beside == main.cells
    if not second or name == second or twins or not extra:
        return [main]
    # It is another network of the same runs, and not another method, so it is never marked.
    title, own = _title(runs, second), _title(runs, deployed)
    first = f"{own}, which is deployed" if view.role is NetworkRole.DEPLOYED else f"{own}'s average"
    other = replace(
        main,
        label=f"{label} ({title})",
        cells=beside,
        paper={},
        competes=False,
        remark=f"{method.title} is the {first}; its {title} comes from the same runs and is not"
        " counted for bold and italics.",
    )
    return [main, other]


def _named(runs: Iterable[Result], role: NetworkRole) -> str:
    """The name of the network with this role in the first run that has one; empty if none has."""
    return next((name for run in runs if (name := View(role).of(run.networks))), "")


def _title(runs: Iterable[Result], name: str) -> str:
    """The title that the method gives to one of its networks."""
    return next((run.networks[name].title for run in runs if name in run.networks), name)


def _cells(runs: Iterable[Result], network: str, choice: Choice) -> dict[str, Cell]:
    """Mean and deviation of every metric over the runs that have scores of this network."""
    scored = [run.scores(network, choice) for run in runs]
    summaries = [scores.summary() for scores in scored if scores is not None]
    if not summaries:
        return {}
    # A metric that was added after some of the runs were tested has no mean over all runs.
    return {
        key: _cell([scores[key] * metric.scale for scores in summaries])
        for key, metric in METRICS.items()
        if all(key in scores for scores in summaries)
    }


def _cell(values: Sequence[float]) -> Cell:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Cell(statistics.fmean(values), deviation, len(values))


def footnote(given: frozenset[str]) -> str:
    """The mark of a row whose runs are given this besides observed labels; empty for none."""
    if "truth" in given:
        return CLEAN
    return PRIORS if "priors" in given else ESTIMATED if "estimate" in given else ""


def _state(row: Row, results: Results, label: str, view: View) -> str:
    """What is missing of a row, in a few words; empty if nothing is."""
    if row.cells:
        scored = next(iter(row.cells.values())).runs
        return "" if scored == row.planned else f"{scored} of {row.planned} runs"
    if row.finished:
        tested = any(run.networks for run in results.of(label))
        return f"no {view.network}" if tested else "no clean labels to test with"
    return results.absence(label)


def _marked(rows: Sequence[Row]) -> list[Row]:
    """The rows with the best and second best cells of every metric marked."""
    cells = [dict(row.cells) for row in rows]
    for key, metric in METRICS.items():
        taking_part = [i for i, row in enumerate(rows) if row.competes and key in row.cells]
        means = [mean for i in taking_part if (mean := cells[i][key].mean) is not None]
        for i, mark in zip(taking_part, marks(means, metric), strict=True):
            cells[i][key] = replace(cells[i][key], mark=mark)
    return [replace(row, cells=own) for row, own in zip(rows, cells, strict=True)]


def _grouped(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Rows grouped by family of methods, in the order of the registry of methods."""
    members: dict[str, list[Row]] = {}
    for title, method in outlines().items():
        members.setdefault(method.family, []).extend(row for row in rows if row.method == title)
    return tuple(Group(name, tuple(own)) for name, own in members.items() if own)


def _notes(rows: Sequence[Row], made_with: str, remarks: Sequence[str]) -> Iterable[str]:
    """Sentences below the table."""
    planned = Counter(row.planned for row in rows)
    if planned:
        count = planned.most_common(1)[0][0]
        spread = SPREAD if count > 1 else ""
        yield f"Mean of {count} run{'s' * (count > 1)}{spread}. Best in bold, second in italics."
    yield from remarks
    yield from (row.remark for row in rows if row.remark)
    for mark, text in _FOOTNOTES.items():
        if any(row.footnote == mark for row in rows):
            yield f"{mark} {text}."
    for row in rows:
        if row.told and not row.remark:
            names = " and ".join(row.told)
            yield (
                f"{row.label} is told through its option{'s' * (len(row.told) > 1)} {names}, set"
                " neither by default nor by tuning on noisy validation labels."
            )
    blank = [metric.heading for key, metric in METRICS.items() if _is_blank(rows, key)]
    if blank:
        yield (
            f"{', '.join(blank)}: blank where runs were tested before the metric was added;"
            " adagc evaluate RUN tests a run again."
        )
    for row in rows:
        if row.cells and row.failures and not row.remark:
            yield f"Failed runs of {row.label}: {'; '.join(row.failures)}."
    if made_with:
        yield f"Settings: {made_with}."


def _caveats(results: Results) -> Iterable[str]:
    """Sentences about the tests of runs, each with the number of runs it is about if not all."""
    tested = [result for result in results.finished if result.networks]
    counts = Counter(result.caveat for result in tested if result.caveat)
    for caveat, count in counts.items():
        some = f"In {count} of {len(tested)} runs " if count < len(tested) else ""
        yield f"{some}{caveat}"


def _is_blank(rows: Sequence[Row], key: str) -> bool:
    """Whether a row has results, but not for this metric."""
    return any(row.cells and key not in row.cells for row in rows)

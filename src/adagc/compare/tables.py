"""One table of a benchmark as plain data; `adagc.compare.render` prints it.

Numbers are as tables show them: per cent, coverage as a count of labels; never rounded here.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from adagc.bench.results import Choice, Result, Results
from adagc.compare.reference import Reference, Value
from adagc.methods import outline, outlines
from adagc.metrics import METRICS, Metric
from adagc.types import NetworkRole, with_role

Mark = Literal["best", "second", ""]

SPREAD = " (and unbiased standard deviation)"  # in a note; a narrow terminal has no room for it
PRIORS = "ᵃ"
CLEAN = "†"
_FOOTNOTES = {
    CLEAN: "trains with clean labels: a bound, which does not take part in bold and italics",
    PRIORS: "is told the true label frequencies or the mean number of labels per image",
}
_NETWORKS = {"network": "trained network", "averaged": "averaged network"}
_EPOCHS = {"last": "last epoch", "best": "best epoch by noisy validation"}


@dataclass(frozen=True)
class Cell:
    """One metric of one row."""

    mean: float | None  # none where the runs do not all have a value
    deviation: float | None  # unbiased; none of a single run
    runs: int
    mark: Mark = ""


BLANK = Cell(None, None, 0)


@dataclass(frozen=True)
class Row:
    """One method, or one variant of it."""

    label: str  # as printed; in brackets the network where it is not the one that was asked for
    method: str  # title
    cells: Mapping[str, Cell]  # by metric that all runs have; empty without anything to show
    finished: int
    planned: int
    failures: tuple[str, ...] = ()
    seconds: float | None = None  # of training, mean
    footnote: str = ""
    paper: Mapping[str, Value] = field(default_factory=dict)  # by metric; theirs
    state: str = ""  # what a reader must know: "2 of 3 runs", "failed: ...", "not run"
    competes: bool = True  # for best and second
    remark: str = ""  # what must be said of it below the table


@dataclass(frozen=True)
class Group:
    """Rows under a heading; variants of an ablation have none."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """All rows of a scenario for one network and one choice of epoch."""

    scenario: str
    title: str
    network: str  # which of each run's networks, in one word
    choice: Choice
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    paper: str = ""  # where the paper's values come from; empty without any

    @property
    def rows(self) -> tuple[Row, ...]:
        """Those of all groups."""
        return tuple(row for group in self.groups for row in group.rows)


def build(
    results: Results,
    *,
    role: NetworkRole = NetworkRole.DEPLOYED,
    choice: Choice = "last",
    title: str | None = None,
    made_with: str = "",
    paper: Reference | None = None,
    paper_note: str = "",
) -> Table:
    """The table of a scenario.

    Args:
        results: What the run folders hold.
        role: Which of each run's networks; see `network_of`.
        choice: At its last epoch or at the one with the best noisy validation.
        title: Of the scenario, for people; its name otherwise.
        made_with: Settings that a reader must know, in one line.
        paper: Values to stand beside ours.
        paper_note: On what data and with what network those were made.
    """
    ablation = any(label != results.method(label) for label in results.labels)
    rows = [
        row
        for label in results.labels
        for row in _rows(results, label, role, choice, paper, extra=not ablation)
    ]
    rows = _marked(rows)
    source = paper.source + (f", made with {paper_note}" if paper_note else "") if paper else ""
    network = called(role)
    shown = f"{_NETWORKS.get(network, network)}, {_EPOCHS[choice]}"
    return Table(
        scenario=results.scenario,
        title=f"{title or results.scenario} ({shown})",
        network=network,
        choice=choice,
        groups=(Group("", tuple(rows)),) if ablation else _grouped(rows),
        notes=tuple(_notes(rows, made_with)),
        paper=source if any(row.paper for row in rows) else "",
    )


def called(role: NetworkRole) -> str:
    """The word for a role in the files of tables."""
    return {NetworkRole.DEPLOYED: "network", NetworkRole.AVERAGE: "averaged"}.get(role, role.value)


def network_of(result: Result, role: NetworkRole) -> str | None:
    """The name of the network of a run that answers for a role.

    What a deployed network learns from is commonly an average of it, so that it stands in for an
    average where a run has no other one.
    """
    found = with_role(result.networks, role)
    if found is None and role is NetworkRole.AVERAGE:
        return with_role(result.networks, NetworkRole.TEACHER)
    return found


def marks(means: Sequence[float], metric: Metric) -> list[Mark]:
    """Best and second best of unrounded means; equal means share a mark.

    Two that share the first place leave the next value the second.
    """
    ranked = sorted(set(means), reverse=metric.better == "up")
    names: tuple[Mark, ...] = ("best", "second")
    given = dict(zip(ranked, names, strict=False)) if len(means) > 1 else {}
    return [given.get(mean, "") for mean in means]


def _rows(
    results: Results,
    label: str,
    role: NetworkRole,
    choice: Choice,
    paper: Reference | None,
    *,
    extra: bool,
) -> list[Row]:
    """The row of a label and, where its networks learn from another one, one more for that."""
    method = outline(results.method(label))
    runs = results.of(label)
    names = {one: _named(runs, one) for one in (role, NetworkRole.TEACHER, NetworkRole.DEPLOYED)}
    name, second = names[role], names[NetworkRole.TEACHER]
    main = Row(
        label=f"{label} ({_title(runs, name)})" if name and name == second else label,
        method=method.title,
        cells=_cells(runs, name, choice),
        finished=len(runs),
        planned=results.count(label),
        failures=tuple(results.failed.get(label, ())),
        seconds=results.seconds(label),
        footnote=_footnote(method.needs),
        paper=paper.rows.get(method.title, {}) if paper and label == method.title else {},
        competes="truth" not in method.needs,
    )
    main = replace(main, state=_state(main, results, label, role))
    if not second or name == second or not extra:
        return [main]
    # The same runs a second time: it must not take a place among the methods.
    title, own = _title(runs, second), _title(runs, names[NetworkRole.DEPLOYED])
    first = f"{own}, which is deployed" if role is NetworkRole.DEPLOYED else f"{own}'s average"
    beside = replace(
        main,
        label=f"{label} ({title})",
        cells=_cells(runs, second, choice),
        paper={},
        competes=False,
        remark=f"{method.title} is the {first}; its {title} is of the same runs and takes no part"
        " in bold and italics.",
    )
    return [main, beside]


def _named(runs: Iterable[Result], role: NetworkRole) -> str:
    """The network that answers for a role in the first run that has one; empty without any."""
    return next((name for run in runs if (name := network_of(run, role))), "")


def _title(runs: Iterable[Result], name: str) -> str:
    """How the method calls one of its networks."""
    return next((run.networks[name].title for run in runs if name in run.networks), name)


def _cells(runs: Iterable[Result], network: str, choice: Choice) -> dict[str, Cell]:
    scored = [run.scores(network, choice) for run in runs]
    found = [scores.summary() for scores in scored if scores is not None]
    if not found:
        return {}
    # A metric that came after some of the runs were tested has no mean over all of them.
    return {
        key: _cell([scores[key] * metric.scale for scores in found])
        for key, metric in METRICS.items()
        if all(key in scores for scores in found)
    }


def _cell(values: Sequence[float]) -> Cell:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Cell(statistics.fmean(values), deviation, len(values))


def _footnote(needs: frozenset[str]) -> str:
    return CLEAN if "truth" in needs else PRIORS if "priors" in needs else ""


def _state(row: Row, results: Results, label: str, role: NetworkRole) -> str:
    """What is missing, in a few words."""
    if row.cells:
        scored = next(iter(row.cells.values())).runs
        return "" if scored == row.planned else f"{scored} of {row.planned} runs"
    if row.finished:
        tested = any(run.networks for run in results.of(label))
        return f"no network called {called(role)}" if tested else "no clean labels to test with"
    if row.failures:
        return f"failed: {row.failures[0]}"
    if label in results.unsuited:
        return f"left out: {results.unsuited[label][0].removeprefix(f'{row.method} ')}"
    folders = [job.folder for job in results.jobs if job.label == label]
    begun = any(results.statuses.get(folder) == "started" for folder in folders)
    return "not finished" if begun else "not run"


def _marked(rows: Sequence[Row]) -> list[Row]:
    cells = [dict(row.cells) for row in rows]
    for key, metric in METRICS.items():
        taking_part = [i for i, row in enumerate(rows) if row.competes and key in row.cells]
        means = [mean for i in taking_part if (mean := cells[i][key].mean) is not None]
        for i, mark in zip(taking_part, marks(means, metric), strict=True):
            cells[i][key] = replace(cells[i][key], mark=mark)
    return [replace(row, cells=own) for row, own in zip(rows, cells, strict=True)]


def _grouped(rows: Sequence[Row]) -> tuple[Group, ...]:
    """By family, in the order of the registry; the networks of a run stay together."""
    members: dict[str, list[Row]] = {}
    for title, method in outlines().items():
        members.setdefault(method.family, []).extend(row for row in rows if row.method == title)
    return tuple(Group(name, tuple(own)) for name, own in members.items() if own)


def _notes(rows: Sequence[Row], made_with: str) -> Iterable[str]:
    planned = Counter(row.planned for row in rows)
    if planned:
        count = planned.most_common(1)[0][0]
        spread = SPREAD if count > 1 else ""
        yield f"Mean of {count} run{'s' * (count > 1)}{spread}. Best in bold, second in italics."
    yield from (row.remark for row in rows if row.remark)
    for mark, text in _FOOTNOTES.items():
        if any(row.footnote == mark for row in rows):
            yield f"{mark} {text}."
    blank = [metric.heading for key, metric in METRICS.items() if _is_blank(rows, key)]
    if blank:
        yield (
            f"{', '.join(blank)}: blank where runs were tested before there was such a metric;"
            " adagc evaluate RUN tests them again."
        )
    for row in rows:
        if row.cells and row.failures and not row.remark:
            yield f"{row.label}: failed with {'; '.join(row.failures)}."
    if made_with:
        yield f"Made with {made_with}."


def _is_blank(rows: Sequence[Row], key: str) -> bool:
    """Whether a row that has results lacks this metric."""
    return any(row.cells and key not in row.cells for row in rows)

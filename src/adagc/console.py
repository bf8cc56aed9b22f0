"""What people see in the terminal: tables, a progress bar, log lines.

Results go to stdout, everything else to stderr, so that `--json` leaves one object on stdout.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from adagc.metrics import METRICS
from adagc.types import in_order

if TYPE_CHECKING:
    from adagc import types
    from adagc.bench.engines import Event
    from adagc.bench.jobs import Job
    from adagc.training.records import EpochRecord, TestRecord

stdout = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)


def configure_logging() -> None:
    """Log lines and Python warnings to stderr, short and in the same form."""
    handler = RichHandler(console=stderr, show_time=False, show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("adagc").setLevel(logging.INFO)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        logging.getLogger("adagc").warning(str(message))

    warnings.showwarning = show


def score_table(rows: Sequence[tuple[str, Mapping[str, Any]]], title: str | None = None) -> Table:
    """All metrics as the paper prints them: per cent, coverage as a count, best in bold."""
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    table.collapse_padding = True
    table.add_column("", no_wrap=True)
    best = {key: metric.best(scores for _, scores in rows) for key, metric in METRICS.items()}
    for metric in METRICS.values():
        # Headings in two lines: the paper's seven fit beside a name in 80 columns.
        heading = Text(f"{metric.heading} {metric.arrow}".replace(" ", "\n"))
        table.add_column(heading, justify="right", no_wrap=True)
    for name, scores in rows:
        cells = []
        for key, metric in METRICS.items():
            text = metric.shown(scores)
            mark = text and scores[key] == best[key] and len(rows) > 1
            cells.append(f"[bold]{text}[/]" if mark else text)
        table.add_row(name, *cells)
    return table


def rows_of(tested: TestRecord) -> list[tuple[str, Mapping[str, Any]]]:
    """(label, scores) for every network and choice of epoch: "network, last (40)"."""
    return [
        (f"{network.title}, {which} ({at.epoch})", at.scores.summary())
        for network in (tested.networks[name] for name in in_order(tested.networks))
        for which, at in sorted(network.epochs.items(), reverse=True)  # the last one first
    ]


class Bar:
    """Progress of one run: loss parts, noisy mAP, time left. Silent when stderr is no terminal."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, note="")
        self._noisy = ""

    def step(self, where: types.Progress, losses: types.Losses) -> None:
        """After an optimiser step."""
        parts = "  ".join(
            f"{name} {float(value.detach()):.3f}" for name, value in losses.parts.items()
        )
        self._progress.update(
            self._task,
            total=where.epochs * where.steps_per_epoch,
            completed=where.step + 1,
            note=f"epoch {where.epoch}/{where.epochs}  {parts}{self._noisy}",
        )

    def epoch(self, line: EpochRecord) -> None:
        """After an epoch."""
        values = " / ".join(
            f"{scores.mean_average_precision * 100:.1f}" for scores in line.noisy.values()
        )
        self._noisy = f"  noisy mAP {values}"
        stage = line.status.get("stage")
        if stage:
            self._noisy += f"  {stage}"


@contextmanager
def progress_bar(title: str) -> Iterator[Bar]:
    """A bar that disappears when done."""
    with _bar() as progress:
        yield Bar(progress, title)


def _bar() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


class BenchBar:
    """Progress of many runs, told by an engine; failures are said at once.

    Where stderr is no terminal, one line per finished run instead of a bar.
    """

    def __init__(self, progress: Progress, jobs: Sequence[Job]) -> None:
        self._progress = progress
        self._epochs = {job.folder: job.epochs_done for job in jobs}
        self._total = {job.folder: job.config().epochs for job in jobs}
        self._counts = {"finished": 0, "failed": 0, "unsuited": 0, "busy": 0}
        self._task = progress.add_task(
            "runs", total=sum(self._total.values()), completed=sum(self._epochs.values()), note=""
        )

    def __call__(self, event: Event) -> None:
        """Take note of what happened."""
        if event.kind == "epoch":
            self._epochs[event.job.folder] = event.epoch
        elif event.kind in self._counts:
            self._counts[event.kind] += 1
            self._epochs[event.job.folder] = self._total[event.job.folder]
        if event.kind == "failed":
            stderr.print(f"failed: {event.job.name}: {event.text}", soft_wrap=True)
        if event.kind == "unsuited":
            stderr.print(f"left out: {event.job.name}: {event.text}", soft_wrap=True)
        if event.kind == "busy":
            stderr.print(f"another process works on {event.job.name}", soft_wrap=True)
        done = " ".join(f"{count} {kind}" for kind, count in self._counts.items() if count)
        done = done.replace("unsuited", "left out")
        if event.kind == "finished" and not stderr.is_terminal:
            # A log file has no bar.
            stderr.print(f"{done} of {len(self._total)}  {event.job.name}", soft_wrap=True)
        self._progress.update(
            self._task,
            completed=sum(self._epochs.values()),
            note=f"{done or 0} of {len(self._total)}  {event.job.name}",
        )


@contextmanager
def bench_bar(jobs: Sequence[Job]) -> Iterator[BenchBar]:
    """A bar over the epochs of all runs, gone when done."""
    with _bar() as progress:
        yield BenchBar(progress, jobs)

"""What people see in the terminal: tables, the progress of runs, log lines.

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
from rich.table import Table
from rich.text import Text

from adagc import progress
from adagc.methods import outline
from adagc.metrics import METRICS
from adagc.types import in_order

if TYPE_CHECKING:
    from adagc import types
    from adagc.bench.engines import Event
    from adagc.bench.jobs import Job
    from adagc.training.frequencies import Frequencies
    from adagc.training.records import EpochRecord, TestRecord

# Names of folders, classes and images may contain brackets: no text is read as markup.
stdout = Console(highlight=False, markup=False)
stderr = progress.terminal()


def configure_logging() -> None:
    """Log lines, Python warnings and lines about progress to stderr, short and in one form."""
    progress.write_lines(lambda text: stderr.print(text, soft_wrap=True))
    handler: logging.Handler = logging.StreamHandler()  # whole lines, for files and programs
    if progress.is_shown():
        handler = RichHandler(console=stderr, show_time=False, show_path=False, show_level=False)
    handler.setFormatter(_Plain())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("adagc").setLevel(logging.INFO)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        logging.getLogger("adagc").warning(str(message))

    warnings.showwarning = show


class _Plain(logging.Formatter):
    """The message alone; warnings say that they are warnings."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        return f"{mark}{super().format(record)}"


def score_table(
    rows: Sequence[tuple[str, Mapping[str, Any]]], title: str | None = None, remark: str = ""
) -> Table:
    """All metrics as the paper prints them: per cent, coverage as a count, best in bold.

    Args:
        rows: Name and scores of each row.
        title: Text above the table.
        remark: Text below the table.
    """
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    if remark:
        table.caption, table.caption_justify = Text(remark), "left"
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
            cells.append(Text(text, style="bold" if mark else ""))
        table.add_row(name, *cells)
    return table


def frequency_table(found: Frequencies) -> Table:
    """Observed and estimated frequency of every class, the most frequent first."""
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("class")
    table.add_column("observed", justify="right")
    if found.priors.trusted:
        table.add_column("estimated", justify="right")
        table.add_column("95 % interval", justify="right")
    for c in found.priors.frequencies.argsort()[::-1]:
        cells = [found.classes[c], f"{100 * found.observed[c]:.1f} %"]
        if found.priors.trusted:
            low, high = 100 * found.priors.frequency_intervals[c]
            cells += [f"{100 * found.priors.frequencies[c]:.1f} %", f"{low:.1f} to {high:.1f} %"]
        table.add_row(*cells)
    return table


def rows_of(tested: TestRecord) -> list[tuple[str, Mapping[str, Any]]]:
    """(label, scores) for every network and choice of epoch: "network, last (40)"."""
    return [
        (f"{network.title}, {which} ({at.epoch})", at.scores.summary())
        for network in (tested.networks[name] for name in in_order(tested.networks))
        for which, at in sorted(network.epochs.items(), reverse=True)  # the last one first
    ]


class Bar:
    """Progress of one run: epochs, noisy mAP, loss parts, time left."""

    def __init__(self, shown: progress.Meter) -> None:
        self._meter = shown
        self._noisy = ""

    def step(self, where: types.Progress, losses: types.Losses) -> None:
        """After an optimiser step."""
        done, total = where.step + 1, where.epochs * where.steps_per_epoch
        if self._meter.due or done == total:
            if not self._meter.done:  # the first step is slower, and a run may be continued
                self._meter.begin_at(done)
            parts = (f"{name} {float(part.detach()):.3f}" for name, part in losses.parts.items())
            epoch = f"epoch {where.epoch}/{where.epochs}"
            note = "  ".join(filter(None, (epoch, self._noisy, *parts)))
            self._meter.update(done, total=total, note=note)

    def epoch(self, line: EpochRecord) -> None:
        """After an epoch."""
        values = (f"{scores.mean_average_precision * 100:.1f}" for scores in line.noisy.values())
        self._noisy = f"noisy mAP {' / '.join(values)}  {line.status.get('stage') or ''}".rstrip()
        epoch = self._meter.note.partition("  ")[0]  # the steps know how many there are
        self._meter.mark(f"{epoch}, {line.in_words}")


@contextmanager
def progress_bar(title: str) -> Iterator[Bar]:
    """Show the progress of a training run until it is done."""
    with progress.meter(title, marks=True) as shown:
        yield Bar(shown)


class BenchBar:
    """Progress of many runs, told by an engine; failures are said at once."""

    def __init__(self, shown: progress.Meter, jobs: Sequence[Job]) -> None:
        self._meter = shown
        self._epochs = {job.folder: job.config().epochs for job in jobs}
        # An epoch counts as much as the method costs, so that the time left is about right.
        self._cost = {job.folder: outline(job.method).cost for job in jobs}
        self._trained = {job.folder: float(job.epochs_done) for job in jobs}
        self._ended = {"finished": 0, "failed": 0, "unsuited": 0, "busy": 0}
        self._started = False
        shown.total = self._amount({folder: n + 1 for folder, n in self._epochs.items()})
        shown.done = self._amount(self._trained)

    def __call__(self, event: Event) -> None:
        """Take note of what happened."""
        folder, name = event.job.folder, event.job.name
        parts = [name]
        if event.kind in ("epoch", "moved"):
            done = event.epoch + event.within
            self._trained[folder] = max(self._trained[folder], done)
            running = min(event.epoch + (event.kind == "moved"), self._epochs[folder])
            parts = [f"epoch {running}/{self._epochs[folder]}" if done else "", name, event.text]
            if not self._started:  # workers start slowly, which tells nothing of the speed
                self._meter.begin_at(self._amount(self._trained))
            self._started = True
        elif event.kind in self._ended:
            self._ended[event.kind] += 1
            self._trained[folder] = self._epochs[folder] + 1  # the last one is for the test
        said = {
            "failed": f"failed: {name}: {event.text}",
            "unsuited": f"left out: {name}: {event.text}",
            "busy": f"another process works on {name}",
        }
        if event.kind in said:
            stderr.print(said[event.kind], soft_wrap=True)
        counts = (f"{count} {kind}" for kind, count in self._ended.items() if count)
        ended = f"{', '.join(counts) or 0} of {len(self._epochs)}".replace("unsuited", "left out")
        told = [ended, *filter(None, parts)]
        self._meter.update(self._amount(self._trained), note="  ".join(told))
        if event.kind in ("epoch", "finished"):
            self._meter.mark(", ".join(told), always=event.kind == "finished")

    def _amount(self, epochs: Mapping[str, float]) -> float:
        return sum(self._cost[folder] * count for folder, count in epochs.items())


@contextmanager
def bench_bar(jobs: Sequence[Job]) -> Iterator[BenchBar]:
    """Show the progress of all runs together until they are done."""
    with progress.meter("runs", marks=True) as shown:
        yield BenchBar(shown, jobs)

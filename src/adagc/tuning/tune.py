"""Tunes a method on noisy validation labels, in one process or in several that share trials."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from adagc import plugins, progress
from adagc.bench.engines import Event, Listener, LocalEngine, Place, Reporter, settle
from adagc.bench.failures import reason
from adagc.bench.results import Choice
from adagc.bench.scenarios import Scenario
from adagc.bench.work import BusyError, perform
from adagc.errors import UsageError
from adagc.methods import find
from adagc.metrics import CRITERIA, CriterionName
from adagc.metrics.noisy import DEFAULT
from adagc.training.records import EpochRecord
from adagc.tuning.ledger import Claim, Ledger, Plan, pause
from adagc.tuning.search import PRUNED, Sampler, space
from adagc.tuning.study import Study, study_of

if TYPE_CHECKING:
    from adagc.methods import Method


def tune(
    scenario: Scenario,
    title: str,
    out: Path,
    *,
    sampler: Sampler = "grid",
    trials: int | None = None,
    share: float | None = 0.5,
    epochs: int | None = None,
    seeds: Sequence[int] | None = None,
    by: Choice = "last",
    select: CriterionName = DEFAULT,
    pruning: bool = True,
    on_event: Listener | None = None,
) -> Study:
    """Find the options of a method that score best on noisy validation labels.

    A second call, or a call in another process at the same time, continues the same search. It
    returns when all trials have ended, including those of other processes.

    Args:
        scenario: The data, the network, and the options that are not tuned.
        title: Title of the method.
        out: Folder that contains the folders of scenarios; the runs go to <scenario>/tune.
        sampler: "grid" tries all combinations of the values in the method's `grid`; "tpe" draws
            values from their ranges with Optuna's TPE sampler.
        trials: Number of trials; by default the whole grid, or 30 for TPE. Trials of all processes
            count, including failed and pruned ones and those that repeat the same options.
        share: Share of the training images to use; None for the scenario's.
        epochs: Number of epochs of every run. By default as many as the method needs to show what
            its options do (its `trial_epochs`): the paper's ten, or all of the scenario's if it has
            a second stage that depends on them, and never more than the scenario's.
        seeds: Seeds of the runs of a trial, whose mean score is compared; by default the first
            seed of the scenario.
        by: Whether the last or the best epoch of a run is its score.
        select: The criterion on noisy validation labels by which trials are compared and their
            best epochs are chosen, see `adagc.metrics.CRITERIA`.
        pruning: Stop trials whose scores are below the median of the others (TPE only; all points
            of a grid are trained to the end, so that they can be compared).
        on_event: Function that is called with every event of a run.
    """
    known = {"sampler": get_args(Sampler), "by": get_args(Choice), "select": tuple(CRITERIA)}
    for name, value in (("sampler", sampler), ("by", by), ("select", select)):
        if value not in known[name]:
            raise UsageError(f"--{name} must be one of {', '.join(known[name])}, not {value}")
    method = find(title)
    plan = Plan(
        scenario=scenario.with_settings(
            share=share, epochs=epochs or trial_epochs(scenario, method), select=select
        ),
        method=method,
        out=Path(out),
        sampler=sampler,
        by=by,
        select=select,
        seeds=tuple(seeds or scenario.seeds[:1]),
        pruning=pruning and sampler == "tpe",
    )
    ledger = Ledger(plan, trials)
    with progress.meter(plan.method.title, ledger.wanted, marks=True) as shown:
        watch = _Watch(plan, ledger, shown, on_event or (lambda event: None))
        while (claim := ledger.take()) is not None:
            try:
                _attempt(plan, claim, watch)
                ledger.close(claim)
            finally:
                claim.lock.release()
    return study_of(plan, ledger.points())


def trial_epochs(scenario: Scenario, method: type[Method]) -> int:
    """Number of epochs of a trial: what the method needs, and never more than the scenario's."""
    whole = scenario.config(scenario.seeds[0]).epochs
    return whole if method.trial_epochs is None else min(method.trial_epochs, whole)


def tune_all(
    scenario: Scenario,
    titles: Sequence[str],
    out: Path,
    *,
    workers: int = 1,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Study]:
    """Tune methods one after the other, each in several processes on this machine.

    Args:
        scenario: As in `tune`.
        titles: Titles of the methods.
        out: As in `tune`.
        workers: Number of processes, including this one; if there are several GPUs, each process
            gets its own.
        say: Function that gets a line of text for every run that this process ends, and for every
            method.
        options: Other arguments of `tune`.
    """
    import torch

    engine = LocalEngine(workers)
    for title in titles:
        space(find(title))  # raises an error before any training if a method cannot be tuned
    speak = say or (lambda text: None)

    def on_event(event: Event) -> None:
        if event.kind in ("finished", "failed"):
            speak(f"{event.job.name}: {event.text or event.kind}")

    context = multiprocessing.get_context("spawn")  # because torch's threads do not survive a fork
    own, *others = [engine.place(number) for number in range(workers)]
    crew = [
        context.Process(
            target=_assist,
            args=(place, plugins.modules(), scenario, titles, out, options),
            daemon=True,
        )
        for place in others
    ]
    threads = torch.get_num_threads()
    try:
        for process in crew:
            process.start()
        if crew:
            torch.set_num_threads(own.threads)
        studies = []
        for title in titles:
            study = tune(scenario, title, out, on_event=on_event, **options)
            studies.append(study)
            done = f"{study.count('finished')} of {len(study.trials)} trials finished"
            speak(f"{study.method} on {study.scenario}: {done}")
        return studies
    finally:
        torch.set_num_threads(threads)
        for process in crew:
            if process.pid is not None:
                process.terminate()  # nothing is lost: trials that have not ended can be continued
                process.join()


def _assist(
    place: Place,
    modules: Sequence[str],
    scenario: Scenario,
    titles: Sequence[str],
    out: Path,
    options: Mapping[str, Any],
) -> None:
    """What the other processes run: the same search, without printing anything."""
    settle(place, modules)
    with progress.sent_to(None):
        for title in titles:
            tune(scenario, title, out, **options)


class _Watch:
    """Passes events on, and shows how far the search is."""

    def __init__(
        self, plan: Plan, ledger: Ledger, shown: progress.Meter, on_event: Listener
    ) -> None:
        self._plan, self._ledger, self._shown, self._on_event = plan, ledger, shown, on_event
        shown.begin_at(ledger.ended)

    def __call__(self, event: Event) -> None:
        self._on_event(event)
        if event.kind not in ("epoch", "moved"):
            return
        plan, job, ended = self._plan, event.job, self._ledger.ended
        before = plan.seeds.index(job.seed) * plan.epochs  # epochs of the seeds before
        trained = before + event.epoch + event.within
        epoch = min(event.epoch + (event.kind == "moved"), plan.epochs)
        told = (
            f"{ended} of {self._ledger.wanted} trials ended, {job.label}, seed {job.seed},"
            f" epoch {epoch}/{plan.epochs}"
        )
        done = ended + trained / (len(plan.seeds) * plan.epochs)
        self._shown.update(done, note=told)
        if event.kind == "epoch":
            self._shown.mark(f"{told}, {event.text}")


class _Pruned(BaseException):
    """Ends a run early. Not an Exception, because `perform` would record those as failures."""


def _attempt(plan: Plan, claim: Claim, tell: Listener) -> None:
    """Train all seeds of a trial, up to the first that fails or is pruned.

    The outcome is recorded in the run folders.
    """
    for number, job in enumerate(claim.jobs):
        mark = job.run.path(PRUNED)
        if plan.pruning and mark.exists():
            _catch_up(plan, claim, number)
            return
        mark.unlink(missing_ok=True)
        tell(Event("started", job))
        try:
            _catch_up(plan, claim, number)
            _train(plan, claim, number, tell)
            _catch_up(plan, claim, number)  # with epochs that another process may have trained
        except _Pruned:
            done = job.epochs_done
            job.run.write_json(PRUNED, {"epoch": done})
            tell(Event("finished", job, f"pruned after epoch {done}", done))
            return
        except Exception as error:
            tell(Event("failed", job, reason(error)))
            return
        tell(Event("finished", job))


def _train(plan: Plan, claim: Claim, number: int, tell: Listener) -> None:
    """Run one job; wait as long as another process is running it."""
    job, announced = claim.jobs[number], False
    reporter = Reporter(lambda kind, value: tell(Event(kind, job, **value)))

    def on_epoch(line: EpochRecord) -> None:
        claim.report(number * plan.epochs + line.epoch - 1, line.criterion(plan.select))
        reporter.epoch(line)
        if plan.pruning and line.epoch < plan.epochs and claim.hopeless():
            raise _Pruned

    while True:
        try:
            return perform(job, on_epoch, reporter.step)
        except BusyError:
            if not announced:
                tell(Event("busy", job))
            announced = True
            pause()


def _catch_up(plan: Plan, claim: Claim, number: int) -> None:
    """Report the epochs that are already in the run's history to the pruner."""
    for line in claim.jobs[number].run.history:
        claim.report(number * plan.epochs + line.epoch - 1, line.criterion(plan.select))

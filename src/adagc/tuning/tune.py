"""Tuning a method on noisy validation labels: one process, or many that share the trials."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from adagc import plugins
from adagc.bench.engines import Event, Listener, LocalEngine, settle
from adagc.bench.failures import reason
from adagc.bench.results import Choice
from adagc.bench.scenarios import Scenario
from adagc.bench.work import BusyError, perform
from adagc.errors import UsageError
from adagc.methods import find
from adagc.training.records import EpochRecord
from adagc.tuning.ledger import Claim, Ledger, Plan, pause
from adagc.tuning.search import PRUNED, Sampler, noisy_map, space
from adagc.tuning.study import Study, study_of


def tune(
    scenario: Scenario,
    title: str,
    out: Path,
    *,
    sampler: Sampler = "grid",
    trials: int | None = None,
    share: float | None = 0.5,
    epochs: int | None = 10,
    seeds: Sequence[int] | None = None,
    by: Choice = "last",
    pruning: bool = True,
    on_event: Listener | None = None,
) -> Study:
    """Find the options of a method that do best on noisy validation labels.

    Called again, or by several processes at once, it goes on with what is there; it returns when
    all trials have ended, also those of other processes.

    Args:
        scenario: The data, the network, and the options that are not tuned.
        title: The method.
        out: Where scenarios have their folders; the runs go to <scenario>/tune.
        sampler: Every combination of the values worth trying, or Optuna's TPE in their ranges.
        trials: How many; by default the whole grid, or 30 for TPE. Trials of all processes count,
            also failed and pruned ones, and those that come upon the same options again.
        share: Of the training images; None for what the scenario says.
        epochs: Of every run; None for what the scenario says.
        seeds: Trials are judged by their mean; by default the first seed of the scenario.
        by: Whether the last or the best epoch of a run is judged.
        pruning: Stop trials that fall behind the median of the others. TPE only: a grid is for
            looking at, so all of its points are trained to the end.
        on_event: Is told of every run.
    """
    for name, value, known in (("sampler", sampler, Sampler), ("by", by, Choice)):
        if value not in get_args(known):
            raise UsageError(f"--{name} must be one of {', '.join(get_args(known))}, not {value}")
    plan = Plan(
        scenario=scenario.with_settings(share=share, epochs=epochs),
        method=find(title),
        out=Path(out),
        sampler=sampler,
        by=by,
        seeds=tuple(seeds or scenario.seeds[:1]),
        pruning=pruning and sampler == "tpe",
    )
    ledger = Ledger(plan, trials)
    while (claim := ledger.take()) is not None:
        try:
            _attempt(plan, claim, on_event or (lambda event: None))
            ledger.close(claim)
        finally:
            claim.lock.release()
    return study_of(plan, ledger.points())


def tune_all(
    scenario: Scenario,
    titles: Sequence[str],
    out: Path,
    *,
    workers: int = 1,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Study]:
    """Tune methods one after the other, every one in so many processes on this machine.

    Args:
        scenario: As for `tune`.
        titles: Of the methods.
        out: As for `tune`.
        workers: Processes, this one included; on several GPUs each has one of its own.
        say: Is given a line for every run that this process ends, and for every method.
        options: Of `tune`.
    """
    import torch

    engine = LocalEngine(workers)
    for title in titles:
        space(find(title))  # one that cannot be tuned is refused before any is
    speak = say or (lambda text: None)

    def on_event(event: Event) -> None:
        if event.kind in ("finished", "failed"):
            speak(f"{event.job.name}: {event.text or event.kind}")

    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    (cores, _), *others = [engine.share(number) for number in range(workers)]
    crew = [
        context.Process(
            target=_assist,
            args=(*share, plugins.modules(), scenario, titles, out, options),
            daemon=True,
        )
        for share in others
    ]
    threads = torch.get_num_threads()
    try:
        for process in crew:
            process.start()
        if crew:
            torch.set_num_threads(len(cores))
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
                process.terminate()  # all trials have ended, or can be continued
                process.join()


def _assist(
    cores: list[int],
    gpu: str | None,
    modules: Sequence[str],
    scenario: Scenario,
    titles: Sequence[str],
    out: Path,
    options: Mapping[str, Any],
) -> None:
    """The life of a second process: the same search, without a word."""
    settle(cores, gpu, modules)
    for title in titles:
        tune(scenario, title, out, **options)


class _Pruned(BaseException):
    """Ends a run early. No Exception: `perform` would note that the job failed."""


def _attempt(plan: Plan, claim: Claim, tell: Listener) -> None:
    """Train all seeds, up to the first that fails or is pruned; the folders say how it went."""
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
            _catch_up(plan, claim, number)  # with what another process trained meanwhile
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
    """One job; while another process has it, wait."""
    job, said = claim.jobs[number], False

    def on_epoch(line: EpochRecord) -> None:
        claim.report(number * plan.epochs + line.epoch - 1, noisy_map(line))
        tell(Event("epoch", job, epoch=line.epoch))
        if plan.pruning and line.epoch < plan.epochs and claim.hopeless():
            raise _Pruned

    while True:
        try:
            return perform(job, on_epoch)
        except BusyError:
            if not said:
                tell(Event("busy", job))
            said = True
            pause()


def _catch_up(plan: Plan, claim: Claim, number: int) -> None:
    """Report the epochs that were trained before, by whomever."""
    for line in claim.jobs[number].run.history:
        claim.report(number * plan.epochs + line.epoch - 1, noisy_map(line))

"""Estimate how long the missing runs will take, from the times of the finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from adagc.bench.jobs import Job
from adagc.bench.results import Results
from adagc.methods import outline


def seconds_left(missing: Iterable[Job], known: Sequence[Results], workers: int) -> float | None:
    """Estimated wall time in seconds of these jobs on `workers` workers.

    If no run of the job's method is finished, the time is estimated from the other methods of the
    scenario and the relative cost that each method declares. Only the epochs that an interrupted
    run has left are counted. None if no run of the scenario is finished.
    """
    each = [0.0]
    for job in missing:
        per_epoch = _per_epoch(job, known)
        if per_epoch is None:
            return None
        each.append(per_epoch * max(0, job.config().epochs - job.epochs_done))
    return max(*each, sum(each) / max(1, workers))


def _per_epoch(job: Job, known: Sequence[Results]) -> float | None:
    """Estimated seconds per epoch of a job; None if no run of its scenario is finished."""
    own: list[float] = []
    units: list[float] = []  # seconds per epoch, divided by the cost of the method
    for results in known:
        if results.scenario != job.scenario:
            continue
        for result in results.finished:
            speed = result.seconds / result.run.settings.epochs
            units.append(speed / outline(result.method).cost)
            if result.method == job.method:
                own.append(speed)
    if own:
        return statistics.mean(own)
    return statistics.mean(units) * outline(job.method).cost if units else None

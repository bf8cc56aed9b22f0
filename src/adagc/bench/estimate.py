"""How long the missing runs will take, judged by the finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from adagc.bench.jobs import Job
from adagc.bench.results import Results
from adagc.methods import outline


def seconds_left(missing: Iterable[Job], known: Sequence[Results], workers: int) -> float | None:
    """Wall time of these jobs on so many workers; None as long as nothing comparable is finished.

    A row without a finished run is judged by the other rows of its scenario and what its method
    says of its own cost. Epochs that an interrupted run has behind it are not counted again.
    """
    each = [0.0]
    for job in missing:
        per_epoch = _per_epoch(job, known)
        if per_epoch is None:
            return None
        each.append(per_epoch * max(0, job.config().epochs - job.epochs_done))
    return max(*each, sum(each) / max(1, workers))


def _per_epoch(job: Job, known: Sequence[Results]) -> float | None:
    own: list[float] = []
    units: list[float] = []
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

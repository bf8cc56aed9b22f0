"""What a reader of a run's scores must know, in sentences."""

from __future__ import annotations

from contextlib import suppress

from adagc.errors import UsageError
from adagc.methods import outline
from adagc.methods.told import Knowledge, caveat, knowledge
from adagc.training.runs import Run


def remarks(run: Run) -> list[str]:
    """What the method was told besides observed labels, and how training went."""
    settings, history = run.settings, run.history
    said = history[-1].remark if history else ""
    found = [f"{settings.method}: {said}."] if said else []
    with suppress(UsageError):  # of a plug-in that is not loaded here, or of another version
        found.insert(0, _caveat(run))
    return [text for text in found if text]


def _caveat(run: Run) -> str:
    """What the run was told of how frequent labels are."""
    settings, priors = run.settings, run.priors
    if priors is not None:
        return caveat(outline(settings.method), settings.options, knowledge(False, priors.source))
    # A run of this version would have a record of what it was told by anything but options.
    knows: Knowledge | None = None if "priors" in run.former else "none"
    return caveat(outline(settings.method), settings.options, knows)

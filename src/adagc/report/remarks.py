"""What a reader of a run's scores must know, in sentences."""

from __future__ import annotations

from contextlib import suppress

from adagc.errors import UsageError
from adagc.methods import outline
from adagc.methods.told import caveat
from adagc.training.runs import Run


def remarks(run: Run) -> list[str]:
    """What the method was told besides observed labels, and how training went."""
    settings, history = run.settings, run.history
    said = history[-1].remark if history else ""
    found = [f"{settings.method}: {said}."] if said else []
    with suppress(UsageError):  # of a plug-in that is not loaded here, or of another version
        found.insert(0, caveat(outline(settings.method), settings.options))
    return [text for text in found if text]

"""The reason why a job failed, kept in a file beside its run folder, for tables and later calls."""

from __future__ import annotations

import json
import traceback
from contextlib import suppress
from typing import Any

from adagc.atomic import write_json
from adagc.bench.jobs import Job
from adagc.errors import NoSpaceError, UnsuitedError, shortage


def note_failure(job: Job, error: BaseException) -> None:
    """Write why the job failed to a file beside its folder; the folder stays as it is."""
    # On a full disk there is no record: the run counts as interrupted, and the next call tries it.
    with suppress(OSError, NoSpaceError):
        job.failure.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            job.failure,
            {
                "error": reason(error),
                "kind": type(error).__name__,
                "traceback": "".join(traceback.format_exception(error)),
            },
        )


def reason(error: BaseException) -> str:
    """The first line of an error message, or the name of the error if it has no message."""
    text = shortage(error) or str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def failure_of(job: Job) -> str:
    """The reason, in one line, why the last attempt at this job failed."""
    return str(_read_failure(job).get("error", "unknown"))


def is_unsuited(job: Job) -> bool:
    """Whether the job ended because its method cannot be used on this data."""
    return _read_failure(job).get("kind") == UnsuitedError.__name__


def _read_failure(job: Job) -> dict[str, Any]:
    """What `note_failure` wrote; empty if there is no readable file."""
    try:
        failure = json.loads(job.failure.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return failure if isinstance(failure, dict) else {}
